from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from pipeline.engines.remote_files import fetch, remote_files
from pipeline.read import read_shard
from pipeline.survey import find_inputs, survey
from schemas.errors import ConfigError, DataContractError, TransientError
from schemas.task import DataConfig

REPOSITORY = Path(__file__).resolve().parents[3]
FILES = {
    "in/2026-11-28/a.csv": b"text\na\nb\n",
    "in/2026-11-28/deep/b.jsonl.gz": gzip.compress(b'{"text": "c"}\n'),
    "in/2026-11-28/_SUCCESS": b"",
    "in/2026-11-29/a.csv": b"text\nd\n",
}
CLOSED_PORT = "http://127.0.0.1:9"


@pytest.fixture
def bucket(s3_client):
    """The name of a bucket with `FILES`."""
    s3_client.create_bucket(Bucket="tickets")
    for name, content in FILES.items():
        s3_client.put_object(Bucket="tickets", Key=name, Body=content)
    return "tickets"


def test_s3_files_folders_and_globs(bucket):
    day = f"s3://{bucket}/in/2026-11-28"
    assert remote_files(f"{day}/a.csv") == (f"{day}/a.csv",)
    below = (f"{day}/_SUCCESS", f"{day}/a.csv", f"{day}/deep/b.jsonl.gz")
    assert remote_files(day) == remote_files(f"{day}/") == below
    assert remote_files(f"s3://{bucket}/in/*/*.csv") == (
        f"{day}/a.csv",
        f"s3://{bucket}/in/2026-11-29/a.csv",
    )
    assert remote_files(f"{day}/**/*.gz") == (f"{day}/deep/b.jsonl.gz",)
    assert remote_files(f"{day}/nothing/*.csv") == ()


def test_a_partition_on_s3_is_surveyed_and_read(bucket, home, tmp_path):
    from datetime import date

    found = find_inputs(f"s3://{bucket}/in/{{date}}", home, date=date(2026, 11, 28))
    data = DataConfig(incoming="x", text_columns=("text",))
    options = {"data": data, "home": home, "rows_per_shard": 10, "spool": tmp_path / "spool"}
    surveyed = survey(found, **options)
    rows = [row for shard in surveyed.shards for row in read_shard(shard)]
    assert [row.values["text"] for row in rows] == ["a", "b", "c"]
    assert [file.name for file in surveyed.inputs] == [
        f"s3://{bucket}/in/2026-11-28/a.csv",
        f"s3://{bucket}/in/2026-11-28/deep/b.jsonl.gz",
    ]
    assert [file.bytes for file in surveyed.inputs] == [
        9,
        len(FILES["in/2026-11-28/deep/b.jsonl.gz"]),
    ]
    assert survey(found, **options).shards == surveyed.shards


def test_nothing_on_s3_is_told_with_the_address(bucket, home):
    with pytest.raises(DataContractError, match=r"nothing matches s3://tickets/in/x"):
        find_inputs(f"s3://{bucket}/in/x", home, date=None)


def test_a_bucket_that_is_not_there_is_an_error_to_mend(bucket):
    with pytest.raises(ConfigError, match=r"s3://absent/x.csv: no such bucket"):
        remote_files("s3://absent/x.csv")


def test_a_file_that_went_away_is_an_error_to_mend(bucket, tmp_path):
    with pytest.raises(ConfigError, match=r"s3://tickets/gone.csv: no such"):
        fetch("s3://tickets/gone.csv", tmp_path / "copy")


def test_a_service_out_of_reach_is_worth_a_retry(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", CLOSED_PORT)
    with pytest.raises(TransientError, match=r"s3://tickets/in: cannot be reached now"):
        remote_files("s3://tickets/in")


class FakeHub(BaseHTTPRequestHandler):
    """The few answers of a model hub that listing and reading a data set take."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        wanted = json.loads(self.rfile.read(length) or b"{}").get("paths", [])
        self.answer([entry for entry in self.entries() if entry["path"] in wanted])

    def do_GET(self):
        path = unquote(self.path.partition("?")[0])
        if "/absent" in path:
            self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif "/broken" in path:
            self.answer({"error": "down"}, 503)
        elif "/resolve/" in path:
            self.answer(FILES[path.partition("/resolve/main/")[2]])
        elif "/tree/" in path:
            folder = path.partition("/tree/main")[2].strip("/")
            self.answer(
                [e for e in self.entries() if e["path"].startswith(f"{folder}/".lstrip("/"))]
            )
        else:
            self.answer({"_id": "1", "id": "me/tickets", "sha": "main", "siblings": [], "tags": []})

    def entries(self):
        folders = {str(parent) for name in FILES for parent in Path(name).parents} - {"."}
        return [
            *({"type": "directory", "path": folder, "oid": "0", "size": 0} for folder in folders),
            *(
                {"type": "file", "path": name, "oid": "0", "size": len(content)}
                for name, content in FILES.items()
            ),
        ]

    def answer(self, body, status=200, headers=None):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture(scope="module")
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


HUB_CODE = """
import sys
from pathlib import Path
from pipeline.engines.remote_files import fetch, remote_files
from schemas.errors import NightmillError
try:
    for address in remote_files(sys.argv[1]):
        fetch(address, Path(sys.argv[2]))
        print(address, len(Path(sys.argv[2]).read_bytes()))
except NightmillError as error:
    print(type(error).__name__, error)
"""


def ask_hub(hub, address, folder, **environment) -> list[str]:
    """What is printed by a process of its own: the hub's address is read when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", HUB_CODE, address, str(folder / "copy")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={
            **os.environ,
            "HF_ENDPOINT": hub,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(folder),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            **environment,
        },
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_files_of_a_hub_are_listed_and_fetched(hub, tmp_path):
    day = "hf://datasets/me/tickets/in/2026-11-28"
    packed = len(FILES["in/2026-11-28/deep/b.jsonl.gz"])
    assert ask_hub(hub, f"{day}/*.csv", tmp_path) == [f"{day}/a.csv 9"]
    assert ask_hub(hub, day, tmp_path) == [
        f"{day}/_SUCCESS 0",
        f"{day}/a.csv 9",
        f"{day}/deep/b.jsonl.gz {packed}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repository", "environment", "expected"),
    [
        ("absent", {}, "ConfigError"),
        ("broken", {}, "TransientError"),
        ("tickets", {"HF_ENDPOINT": CLOSED_PORT}, "TransientError"),
        ("tickets", {"HF_HUB_OFFLINE": "1"}, "ConfigError"),
    ],
)
def test_trouble_with_a_hub_is_named(hub, tmp_path, repository, environment, expected):
    address = f"hf://datasets/me/{repository}/in"
    (line,) = ask_hub(hub, address, tmp_path, **environment)
    assert line.startswith(f"{expected} {address}: ")
