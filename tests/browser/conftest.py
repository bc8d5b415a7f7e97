"""A home with sample reviews, both servers as `make up` starts them, and a browser at them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from schemas.bundle import TOKENIZER_FILE
from schemas.load import SHIPPED_TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Locator, Page

REPOSITORY = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SCREENSHOTS_VARIABLE = "NIGHTMILL_SCREENSHOTS"
# Long enough for a machine on which several suites run; each is over as soon as it may be.
START_LIMIT_S = 700
PAGE_LIMIT_MS, REQUEST_LIMIT_MS = 300_000, 600_000
STOP_LIMIT_S = 90
CONTROL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Stand:
    """Both servers at work: their addresses, and the admin's password."""

    airflow: str
    mlflow: str
    password: str


class Screen:
    """One person's browser: a page, and a picture of each station on the way."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def shoot(self, station: str) -> None:
        """Keeps what is to be seen as `STATION.png`, once nothing moves any more."""
        self.page.wait_for_timeout(1500)
        self.page.screenshot(path=self._folder / f"{station}.png", animations="disabled")

    def log_in(self, stand: Stand) -> None:
        """Logs the admin in to Airflow."""
        self.page.goto(stand.airflow)
        self.page.fill("input[name=username]", "admin")
        self.page.fill("input[name=password]", stand.password)
        self.shoot("01-login")
        self.page.click("button[type=submit]")
        self.page.wait_for_url(lambda address: "login" not in address)

    def answer(self, address: str) -> dict[str, Any]:
        """What Airflow's API says to the one who is logged in here."""
        response = self.page.request.get(address, timeout=REQUEST_LIMIT_MS)
        assert response.ok, f"{address}: {response.status} {response.text()}"
        return dict(response.json())

    def field(self, name: str) -> Locator:
        """A field of the open trigger form, by its parameter; its section is opened first."""
        form = self.page.get_by_test_id("config-form")
        named = f"#element_{name}, input[name=element_{name}]"
        section = form.locator("[data-part=item]").filter(has=self.page.locator(named))
        field = section.locator(named).first
        if section.get_attribute("data-state") == "closed":
            section.locator("[data-part=item-trigger]").click()
        field.wait_for(state="visible")
        return field


def eventually(probe: Callable[[], Any], *, limit_s: float, said: Callable[[], str]) -> Any:
    """The first true value of `probe`; `said` tells what there is to see where none comes."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := probe():
            return value
        threading.Event().wait(0.5)
    raise AssertionError(f"nothing came in {limit_s:.0f} s: {said()}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser; without one, or without what drives it, its tests are skipped."""
    pytest.importorskip(
        "playwright", reason="playwright is not installed: pip install '.[browser]'"
    )
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium")
    return path


@pytest.fixture(scope="session")
def sample_home(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sample reviews, and a task of that name whose recipe suits a tiny encoder."""
    home = tmp_path_factory.mktemp("browser") / "home"
    command = [sys.executable, "-m", "jobs", "sample", "--home", str(home)]
    subprocess.run([*command, "--history-rows", "600", "--days", "1"], check=True)
    task = yaml.safe_load((SHIPPED_TASKS / "reviews.yaml").read_text(encoding="utf-8"))
    task["train"] = {
        "backbone": f"path:{make_backbone(home)}",
        "batch_size": 16,
        "learning_rate": 5e-3,
        "threads_per_worker": 1,
    }
    task["compress"] = {"calibration_texts": 32, "gate_texts": 64}
    (home / "tasks").mkdir()
    (home / "tasks" / "reviews.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")
    return home


def make_backbone(home: Path) -> Path:
    """A random encoder of two layers, which knows the words of the home's reviews."""
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = home / "tiny-backbone"
    tokenizer = tokenizer_of(home / "labelled" / "reviews")
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        pad_token_id=0,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    names = {f"{token.strip('[]').lower()}_token": token for token in CONTROL}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **names
    ).save_pretrained(folder)
    return folder


def tokenizer_of(folder: Path) -> Any:
    """A WordPiece tokenizer of the texts of a folder of JSON lines."""
    from tokenizers import BertWordPieceTokenizer
    from tokenizers.processors import BertProcessing

    texts = [
        str(row.get("text") or "")
        for path in sorted(folder.glob("*.jsonl"))
        for row in _rows_of(path)
    ]
    trained = BertWordPieceTokenizer()
    trained.train_from_iterator(texts, vocab_size=2000, show_progress=False)
    start, end = ((name, trained.token_to_id(name)) for name in ("[CLS]", "[SEP]"))
    tokenizer = trained._tokenizer
    tokenizer.post_processor = BertProcessing(end, start)
    return tokenizer


def _rows_of(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # dirt on purpose
            continue
        if isinstance(row, dict):
            yield row


@pytest.fixture(scope="session")
def stand(sample_home: Path) -> Iterator[Stand]:
    """Airflow and MLflow as `make up` starts them, on free ports, stopped afterwards."""
    output = sample_home.parent / "up.log"
    with output.open("w") as file:
        process = subprocess.Popen(
            _command(sample_home), stdout=file, stderr=file, env=_environment()
        )
    try:
        yield _stand(process, output)
    finally:
        process.terminate()
        process.wait(timeout=STOP_LIMIT_S)


def _command(home: Path) -> list[str]:
    command = [sys.executable, str(REPOSITORY / "infra" / "up.py"), "--home", str(home)]
    return [*command, "--mlflow-port", str(_free_port()), "--airflow-port", str(_free_port())]


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment() -> dict[str, str]:
    """This process's, without what would lead to servers or jobs of somebody else's."""
    foreign = ("NIGHTMILL_", "MLFLOW_", "AIRFLOW_", "RAY_ADDRESS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # A server that other work keeps from answering for some seconds is no reason to give up.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "600",
        "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "20",
    }


def _stand(process: subprocess.Popen[bytes], output: Path) -> Stand:
    """What the welcome says, once it is there."""

    def told() -> str:
        text = output.read_text()
        assert process.poll() is None, f"the servers ended: {text}"
        return text if "Ctrl-C stops everything" in text else ""

    text = eventually(told, limit_s=START_LIMIT_S, said=output.read_text)
    airflow, mlflow = (re.search(rf"{name}\s+(http\S+)", text)[1] for name in ("Airflow", "MLflow"))
    password = re.search(r"\badmin\b\W+password\s+(\S+)", text)[1]
    return Stand(airflow, mlflow, password)


@pytest.fixture
def screen(chromium: str, stand: Stand, tmp_path: Path) -> Iterator[Screen]:
    """A browser without a window; pictures go where `NIGHTMILL_SCREENSHOTS` says."""
    from playwright.sync_api import sync_playwright

    folder = Path(os.environ.get(SCREENSHOTS_VARIABLE) or tmp_path / "screenshots")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        # A sandbox of its own is not to be had by root in a container, and our own pages need none.
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", *quiet]
        )
        context = browser.new_context(viewport={"width": 1360, "height": 900})
        context.set_default_timeout(PAGE_LIMIT_MS)
        yield Screen(context.new_page(), folder)
        browser.close()
