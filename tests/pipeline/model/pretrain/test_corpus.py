from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.model.labelled import split_of
from pipeline.model.pretrain.corpus import Corpus, read_texts, survey_texts, texts_digest
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.pretrain.pieces import PieceTokenizer
    from schemas.home import Home
    from schemas.task import TaskConfig


def write(home: Home, day: str, rows: list[dict[str, Any]]) -> None:
    path = home.root / f"incoming/tiny/date={day}/rows.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(name: str, body: str, subject: str = "hello") -> dict[str, Any]:
    return {"ticket_id": name, "subject": subject, "body": body}


def read(task: TaskConfig, home: Home, tokenizer: PieceTokenizer | None = None) -> Corpus:
    found = survey_texts(task, task.pretrain.corpus, home, spool=home.root / "spool")
    return read_texts(task, found, tokenizer=tokenizer)


def test_all_dates_are_read_each_text_once_and_a_repeated_id_is_no_fault(
    home: Home, pretrain_task: Callable[..., TaskConfig]
) -> None:
    days = {"2026-11-27": range(40), "2026-11-28": range(30, 60)}
    for day, numbers in days.items():
        write(home, day, [row(f"t{number % 10}", f"text {number}") for number in numbers])
    task = pretrain_task(valid_fraction=0.3)
    corpus = read(task, home)
    bodies = {text.parts[1] for text in [*corpus.train, *corpus.valid]}
    assert bodies == {f"text {number}" for number in range(60)}
    assert corpus.counts["repeated"] == 10
    assert sum(corpus.counts.values()) == 70
    assert not corpus.rejected
    assert 5 < len(corpus.valid) < 32
    again = read(task, home)
    assert (again.train, again.valid) == (corpus.train, corpus.valid)
    bounded = read(pretrain_task(valid_fraction=0.3, max_valid_texts=3), home)
    assert bounded.valid == corpus.valid[:3]
    assert bounded.counts["unmeasured"] == len(corpus.valid) - 3


def test_what_fine_tuning_tests_on_is_not_learned_from(
    home: Home, pretrain_task: Callable[..., TaskConfig]
) -> None:
    write(home, "2026-11-28", [row(f"t{number}", f"text {number}") for number in range(80)])
    task = pretrain_task()
    corpus = read(task, home)
    tested = {
        number
        for number in range(80)
        if split_of(("hello", f"text {number}"), task.train, has_test=False) == "test"
    }
    assert tested
    assert tested <= {int(text.parts[1].split()[1]) for text in corpus.valid}


def test_a_corpus_of_its_own_with_the_text_columns_only(
    home: Home, pretrain_task: Callable[..., TaskConfig]
) -> None:
    folder = home.root / "archive"
    folder.mkdir()
    lines = ["subject,body", *(f"hello,text {number}" for number in range(50)), ",  "]
    (folder / "old.csv").write_text("\n".join(lines) + "\n")
    task = pretrain_task(corpus="archive/*.csv", valid_fraction=0.3)
    contract = task.contract.model_validate({"columns": {"ticket_id": {"required": True}}})
    corpus = read(task.model_copy(update={"contract": contract}), home)
    assert len(corpus.train) + len(corpus.valid) == 50
    assert dict(corpus.rejected) == {"missing_text": 1}


def test_texts_are_cleaned_of_special_tokens(
    home: Home, pretrain_task: Callable[..., TaskConfig], piece_tokenizer: PieceTokenizer
) -> None:
    rows = [row(f"t{number}", f"a [SEP] {number} <b>b</b>") for number in range(40)]
    write(home, "2026-11-28", rows)
    for tokenizer in (piece_tokenizer, None):
        corpus = read(pretrain_task(valid_fraction=0.3), home, tokenizer)
        assert all("[SEP]" not in text.parts[1] for text in corpus.train)
        assert all("<b>" not in text.parts[1] for text in corpus.train)


def test_the_digest_is_that_of_the_bytes(
    home: Home, pretrain_task: Callable[..., TaskConfig]
) -> None:
    def digest() -> str:
        return texts_digest(survey_texts(pretrain_task(), None, home, spool=home.root / "spool"))

    write(home, "2026-11-27", [row("a", "one")])
    first = digest()
    assert digest() == first
    write(home, "2026-11-28", [row("b", "two")])
    assert digest() != first


def test_nothing_held_out_is_told(home: Home, pretrain_task: Callable[..., TaskConfig]) -> None:
    write(home, "2026-11-28", [row("a", "one"), row("b", " ", subject="")])
    with pytest.raises(DataContractError, match=r"need both; add texts or change pretrain"):
        read(pretrain_task(valid_fraction=0.01), home)
