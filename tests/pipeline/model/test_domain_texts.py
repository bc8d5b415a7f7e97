"""Texts of another domain: which are read, and what the workers get of them."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.model.domain_texts import (
    keep_domain,
    load_domain,
    read_domain,
    survey_domain,
    with_domain,
)
from pipeline.model.labelled import Example
from schemas.errors import DataContractError
from schemas.train import DomainAdversarialConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from schemas.home import Home
    from schemas.task import TaskConfig

    MakeTask = Callable[..., TaskConfig]


def write(home: Home, name: str, bodies: list[str]) -> None:
    """A day's records, a blank one without subject too; the same ids come again each day."""
    rows = [
        {"ticket_id": f"t{n}", "subject": "hello" if body.strip() else "", "body": body}
        for n, body in enumerate(bodies)
    ]
    path = home.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def make_task(tiny_task: TaskConfig) -> MakeTask:
    """The tiny task with a target domain; `changes` are of the recipe."""

    def make(asked: dict[str, Any] | None = None, **changes: Any) -> TaskConfig:
        section = DomainAdversarialConfig.model_validate(asked or {})
        train = tiny_task.train.model_copy(update={"domain_adversarial": section, **changes})
        return tiny_task.model_copy(update={"train": train})

    return make


@pytest.fixture
def tokenizer(tiny_tokenizer_path: Path) -> BackboneTokenizer:
    return BackboneTokenizer(tiny_tokenizer_path)


def test_all_dates_are_read_each_text_once_and_held_out_ones_are_told(
    home: Home, make_task: MakeTask, tokenizer: BackboneTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    write(home, "incoming/tiny/date=2026-11-27/a.jsonl", ["late parcel", "good price", " "])
    write(home, "incoming/tiny/date=2026-11-28/a.jsonl", ["bad price", "late parcel"])
    task = make_task()
    found = survey_domain(task, home, spool=home.root / "spool")
    assert found is not None
    texts = read_domain(task, found, tokenizer=tokenizer, max_texts=10, labelled=())
    assert len(texts) == len({text.text_hash for text in texts}) == 3
    assert all((text.texts, text.targets) == ((), {}) for text in texts)  # no text goes to disk
    held_out = Example(**{**vars(texts[1]), "split": "test"})
    with caplog.at_level(logging.INFO):
        some = read_domain(
            task, found, tokenizer=tokenizer, max_texts=2, labelled=[texts[0], held_out]
        )
    assert some == texts[:2]
    assert "2 of 3 texts, 1 rows rejected; 1 of the texts are held out" in caplog.text


def test_a_corpus_of_its_own_is_another_run(
    home: Home, make_task: MakeTask, tokenizer: BackboneTokenizer, tmp_path: Path
) -> None:
    write(home, "elsewhere/a.jsonl", ["broken app " * 40, "login"])
    task = make_task({"corpus": "elsewhere/*.jsonl"})
    found = survey_domain(task, home, spool=home.root / "spool")
    keep_domain(task, found, tmp_path / "domain.parquet", tokenizer=tokenizer, labelled=())
    windows = load_domain(tmp_path / "domain.parquet", task.train)
    assert len(windows) == 3  # two of the long text, as of a labelled record
    assert max(window.n_tokens for window in windows) == task.window.max_tokens
    first = task.train.model_copy(update={"window_pooling": "first"})
    assert len(load_domain(tmp_path / "domain.parquet", first)) == 2

    digest = with_domain("a", found)
    write(home, "elsewhere/a.jsonl", ["broken app", "login", "crash"])
    again = survey_domain(task, home, spool=home.root / "spool")
    assert len({digest, with_domain("a", again), with_domain("a", None)}) == 3
    assert with_domain("a", None) == "a"


def test_without_the_section_nothing_is_read(
    home: Home, tiny_task: TaskConfig, tokenizer: BackboneTokenizer, tmp_path: Path
) -> None:
    assert survey_domain(tiny_task, home, spool=home.root / "spool") is None
    path = tmp_path / "domain.parquet"
    keep_domain(tiny_task, None, path, tokenizer=tokenizer, labelled=())
    assert not path.exists()
    assert load_domain(path, tiny_task.train) == []


def test_no_text_at_all_says_so(
    home: Home, make_task: MakeTask, tokenizer: BackboneTokenizer
) -> None:
    write(home, "incoming/tiny/date=2026-11-27/a.jsonl", [" ", ""])
    task = make_task()
    found = survey_domain(task, home, spool=home.root / "spool")
    assert found is not None
    with pytest.raises(DataContractError, match="no text of the target domain is left, 2 rows"):
        read_domain(task, found, tokenizer=tokenizer, max_texts=9, labelled=())
