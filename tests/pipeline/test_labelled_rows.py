"""Labelled files into examples, through the same steps that score at night."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.labelled_rows import LabelledData, data_digest, load_labelled, survey_labelled
from schemas.errors import ConfigError, DataContractError

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home
    from schemas.task import TaskConfig


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "ticket_id": f"t{number}",
        "subject": f"help {number}",
        "body": f"the parcel {number} is late",
        "queue": ("billing", "technical", "shipping")[number % 3],
        "topics": "price" if number % 2 else "",
    } | changes


def write(home: Home, rows: list[dict[str, Any]], *, name: str = "labelled/tiny/a.jsonl") -> None:
    path = home.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")


def load(home: Home, task: TaskConfig, tokenizer_path: Path) -> LabelledData:
    labelled, test = survey_labelled(task, home, spool=home.root)
    return load_labelled(task, labelled, test, tokenizer=BackboneTokenizer(tokenizer_path))


def with_data(task: TaskConfig, **changes: Any) -> TaskConfig:
    return task.model_copy(update={"data": task.data.model_copy(update=changes)})


def test_examples_have_windows_and_targets(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    write(home, [row(number) for number in range(60)])
    data = load(home, tiny_task, tiny_tokenizer_path)
    assert sum(data.rows.values()) == len(data.examples) == 60
    assert all(data.rows[split] > 0 for split in ("train", "valid", "test"))
    example = next(item for item in data.examples if item.record_id == "t1")
    assert example.targets == {"queue": 1, "topics": (1, 0)}
    assert example.texts == ("help 1", "the parcel 1 is late")
    assert example.windows[0].n_tokens > 8
    assert (data.rejected, data.unlabelled) == ([], 0)


def test_the_texts_are_profiled_with_their_tokens_and_rejects(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    rows = [row(n) for n in range(9)]
    rows += [row(9, body="  the   parcel ☃"), row(10, subject="", body="")]
    write(home, [*rows, row(11, queue="", topics=None)])
    data = load(home, tiny_task, tiny_tokenizer_path)
    profile = data.profile.document()
    assert (profile.texts, profile.tokenized, profile.rejected) == (10, 10, {"missing_text": 1})
    assert profile.cleaned["whitespace"] == 1
    assert sum(found.unknown for found in profile.languages.values()) == 1
    assert profile.windows.count == len(data.examples) == 10


def test_a_record_has_the_day_of_its_time_column_in_utc(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = ["2026-03-01", "2026-03-01T00:30:00+02:00", " 2026-03-01 12:00:00 ", "1.3.26", None]
    write(home, [row(n, made=time) for n, time in enumerate(times)] + [row(5)])
    task = with_data(tiny_task, time_column="made")
    days = {each.record_id: each.day for each in load(home, task, tiny_tokenizer_path).examples}
    first = dt.date(2026, 3, 1)
    assert days == {
        "t0": first, "t1": dt.date(2026, 2, 28), "t2": first, "t3": None, "t4": None, "t5": None
    }  # fmt: skip
    assert "3 of 6 labelled records have no ISO 8601 time in column 'made'" in caplog.text
    caplog.clear()
    assert {each.day for each in load(home, tiny_task, tiny_tokenizer_path).examples} == {None}
    assert "time" not in caplog.text


def test_a_row_without_any_label_is_counted_not_used(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    rows = [row(n) for n in range(10)]
    rows += [row(10, queue="", topics=None), row(11, queue=None, topics=None)]
    rows += [row(12, queue="", topics="quality"), row(13, queue="billing", topics=None)]
    write(home, rows)
    data = load(home, tiny_task, tiny_tokenizer_path)
    assert data.unlabelled == 2
    by_id = {example.record_id: example.targets for example in data.examples}
    assert by_id["t12"] == {"queue": None, "topics": (0, 1)}
    assert by_id["t13"] == {"queue": 0, "topics": None}


def test_rejected_rows_are_kept_with_their_reasons(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    write(home, [*(row(n) for n in range(5)), row(5, subject="", body=" "), row(2)])
    data = load(home, tiny_task, tiny_tokenizer_path)
    assert [(item.record_id, item.reason.value) for item in data.rejected] == [
        ("t5", "missing_text"),
        ("t2", "duplicate_id"),
    ]


def test_a_text_of_the_test_files_never_trains(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    task = with_data(tiny_task, test="test/tiny/*.jsonl")
    write(home, [row(n) for n in range(40)])
    copies = [row(n) | {"ticket_id": f"copy-{n}"} for n in range(4)]
    write(home, copies, name="test/tiny/a.jsonl")
    data = load(home, task, tiny_tokenizer_path)
    assert data.rows["test"] == 4
    train_hashes = {item.text_hash for item in data.examples if item.split != "test"}
    assert not train_hashes & {item.text_hash for item in data.examples if item.split == "test"}
    assert len(train_hashes) == 36
    assert data.leakage.counts["train-test"] + data.leakage.counts["valid-test"] == 4


LONG = "the parcel arrived two weeks late and the box was open so please send me a new one"


def test_a_near_copy_of_a_held_out_text_never_trains(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    task = with_data(tiny_task, test="test/tiny/*.jsonl")
    copy = row(90, subject="help", body=LONG + "!! now")
    write(home, [*(row(n) for n in range(40)), copy])
    write(home, [row(91, subject="help", body=LONG)], name="test/tiny/a.jsonl")
    data = load(home, task, tiny_tokenizer_path)
    assert "t90" not in {item.record_id for item in data.examples}
    assert sum(data.leakage.counts.values()) == 1
    train = task.train.model_copy(update={"near_duplicate_similarity": None})
    without = load(home, task.model_copy(update={"train": train}), tiny_tokenizer_path)
    assert "t90" in {item.record_id for item in without.examples}
    # What is left out moves no other record to another split.
    splits = {item.record_id: item.split for item in without.examples}
    assert {item.record_id: item.split for item in data.examples}.items() <= splits.items()


def test_equal_texts_with_other_labels_stay_and_are_counted(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    twins = [row(n, subject="help", body=LONG, topics="") for n in (90, 91)]
    write(home, [*(row(n) for n in range(20)), *twins])
    data = load(home, tiny_task, tiny_tokenizer_path)
    assert len(data.examples) == 22
    assert data.conflicts.counts == {"queue": 1, "topics": 0}
    assert data.conflicts.examples["queue"] == ("t90", "t91")


def test_where_all_is_held_out_nothing_is_left_to_train_on(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    write(home, [row(n) for n in range(5)])
    write(home, [row(n) for n in range(5)], name="test/tiny/a.jsonl")
    task = with_data(tiny_task, test="test/tiny/*.jsonl")
    with pytest.raises(DataContractError, match=r"no record is left .* \d of train that are in te"):
        load(home, task, tiny_tokenizer_path)


def test_unknown_labels_are_told_together(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    """FAILURES row 43: a label outside of the set stops before training."""
    rows = [row(0, queue="biling"), row(1, queue="biling"), row(2, topics="prize")]
    write(home, rows)
    with pytest.raises(DataContractError, match=r"'biling' \(did you mean 'billing'\?\) in 2 reco"):
        load(home, tiny_task, tiny_tokenizer_path)


def test_too_many_rejects_stop_the_training(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    write(home, [row(0), row(1, subject="", body=""), row(2, subject=3)])
    with pytest.raises(DataContractError, match=r"2 of 3 labelled rows rejected .* 1 missing_text"):
        load(home, tiny_task, tiny_tokenizer_path)


def test_data_without_labels_is_named(
    home: Home, tiny_task: TaskConfig, tiny_tokenizer_path: Path
) -> None:
    write(home, [row(n, queue="", topics=None) for n in range(3)])
    with pytest.raises(DataContractError, match=r"none of 3 labelled rows .*\['queue', 'topics'\]"):
        load(home, tiny_task, tiny_tokenizer_path)


def test_a_task_without_labelled_data_says_what_to_set(home: Home, tiny_task: TaskConfig) -> None:
    with pytest.raises(ConfigError, match=r"set data\.labelled to files with the columns"):
        survey_labelled(with_data(tiny_task, labelled=None), home, spool=home.root)


def test_the_data_digest_is_that_of_the_bytes(home: Home, tiny_task: TaskConfig) -> None:
    write(home, [row(0), row(1)])
    first = data_digest(*survey_labelled(tiny_task, home, spool=home.root))
    assert data_digest(*survey_labelled(tiny_task, home, spool=home.root)) == first
    write(home, [row(0), row(2)])
    assert data_digest(*survey_labelled(tiny_task, home, spool=home.root)) != first
