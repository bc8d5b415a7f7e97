"""The databases themselves: first users, backup, and what is said of a wrong password."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from pipeline.engines import first_use
from schemas.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).resolve().parents[2]
FIRST_USER = """\
import pathlib, sys
from pipeline.engines.registry import Registry
from schemas.home import Home
print("ready", flush=True)
sys.stdin.readline()
Registry(Home(pathlib.Path(sys.argv[1]))).start_run("tiny", sys.argv[1], params={})
"""


def test_failure_44_first_users_of_a_fresh_database_do_not_race(postgres, tmp_path):
    postgres.sql("CREATE DATABASE first_use OWNER nightmill")
    address = f"postgresql+psycopg2://nightmill@127.0.0.1:{postgres.port}/first_use"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": address, "PGPASSWORD": postgres.password}
    # Homes of their own, as on machines of their own: no lock file is common to them.
    users = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_USER, str(tmp_path / name)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    try:
        assert [user.stdout.readline() for user in users] == ["ready\n"] * 3
        ended = [user.communicate("\n", timeout=300) for user in together(users)]
    finally:
        for user in users:
            user.kill()
    assert [user.returncode for user in users] == [0, 0, 0], ended
    assert postgres.sql("SELECT count(*) FROM runs", "first_use") == "3"


def together(users):
    for user in users:
        user.stdin.write("\n")
        user.stdin.flush()
    return users


def test_one_process_at_a_time_is_alone_at_a_database(postgres, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    address = f"postgresql+psycopg2://nightmill@127.0.0.1:{postgres.port}/mlflow"
    query = f"SELECT pg_try_advisory_lock({first_use._LOCK})"
    with first_use.alone_at(address, lock=tmp_path / "lock"):
        assert postgres.sql(query, "mlflow") == "f"
    assert postgres.sql(query, "mlflow") == "t"


@pytest.mark.parametrize(
    ("scheme", "login", "database", "problem"),
    [
        ("postgresql+psycopg2", "nightmill:another-word", "mlflow", "authentication failed"),
        ("postgresql+psycopg2", "nightmill:{right}", "nowhere", '"nowhere" does not exist'),
        ("postgresql+nodriver", "nightmill:another-word", "mlflow", "install nightmill.production"),
    ],
)
def test_a_refusal_of_the_tracking_database_is_not_tried_again(
    postgres, tmp_path, scheme, login, database, problem
):
    right = quote(postgres.password, safe="")
    place = f"127.0.0.1:{postgres.port}/{database}"
    address = f"{scheme}://{login.format(right=right)}@{place}"
    shown = re.escape(f"tracking database {scheme}://nightmill:***@{place}: ")
    with (
        pytest.raises(ConfigError, match=f"{shown}.*{problem}"),
        first_use.alone_at(address, lock=tmp_path / "lock"),
    ):
        pass


def documented(heading):
    """The shell commands below a heading of the page on production."""
    page = (REPOSITORY / "docs" / "production.md").read_text()
    return re.search(rf"^## {heading}$.*?^```bash$(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1]


def test_documented_backup_and_restore_bring_everything_back(postgres, tmp_path):
    home, backup = tmp_path / "home", tmp_path / "backup"
    (home / "logs").mkdir(parents=True)
    (home / "mlartifacts").mkdir()
    (home / "mlartifacts" / "model.onnx").write_text("weights")
    backup.mkdir()
    databases = ("airflow", "mlflow", "mlflow_accounts")
    environment = os.environ | {
        "PATH": f"{postgres.binaries}{os.pathsep}{os.environ['PATH']}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGUSER": "nightmill",
        "PGPASSWORD": postgres.password,
        "BACKUP": str(backup),
        "NIGHTMILL_HOME": str(home),
    }
    for name in databases:
        postgres.sql(f"SET ROLE nightmill; CREATE TABLE kept AS SELECT '{name}' AS told", name)

    def run(heading):
        script = ["bash", "-euc", documented(heading)]
        done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    run("Backup")
    for name in databases:
        postgres.sql("UPDATE kept SET told = 'lost'", name)
    shutil.rmtree(home)
    run("Restore")

    told = [postgres.sql("SELECT told FROM kept", name) for name in databases]
    for name in databases:
        postgres.sql("DROP TABLE kept", name)
    assert told == list(databases)
    assert (home / "mlartifacts" / "model.onnx").read_text() == "weights"
    assert not (home / "logs").exists()
    assert {path.stat().st_mode & 0o077 for path in backup.iterdir()} == {0}


def test_a_wrong_password_is_said_before_anything_starts(postgres, tmp_path):
    wrong = postgres.address.replace(quote(postgres.password, safe=""), "another-word")
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "infra" / "up.py"), "--home", str(tmp_path / "home")],
        env={**os.environ, "NIGHTMILL_DATABASE": wrong},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "database airflow does not answer" in done.stderr
    assert 'password authentication failed for user "nightmill"' in done.stderr
    assert "another-word" not in done.stderr + done.stdout
    assert not (tmp_path / "home").exists()
