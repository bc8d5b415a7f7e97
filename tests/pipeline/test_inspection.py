from __future__ import annotations

import datetime as dt
import json

import pytest

from pipeline.bundle import text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.inspection import inspect_partition
from pipeline.spool import temporary_spool
from pipeline.survey import find_inputs, survey

DAY = dt.date(2026, 11, 28)


@pytest.fixture
def night(home, tiny_task):
    path = home.root / f"incoming/tiny/date={DAY}/a.jsonl"
    path.parent.mkdir(parents=True)
    rows = [
        {"ticket_id": "1", "subject": "hello", "body": "please help with my invoice"},
        {"ticket_id": "2", "subject": "hello", "body": "please help with my invoice"},
        {"ticket_id": "3", "subject": None, "body": "<b>ausgezeichnet</b>"},
        {"ticket_id": "4", "subject": "", "body": "<p></p>"},
        {"ticket_id": "3", "subject": "again", "body": "again"},
    ]
    path.write_text("\n".join([*map(json.dumps, rows), "{"]) + "\n")
    return home


def inspected(home, task, tokenizer):
    with temporary_spool(home, task.name) as spool:
        found = survey(
            find_inputs(task.data.incoming, home, date=DAY), data=task.data, home=home,
            rows_per_shard=2, spool=spool, unique_columns=task.contract.unique_columns,
        )  # fmt: skip
        return inspect_partition(
            task, DAY, found.shards, text_flow(task, tokenizer), vocabulary=tokenizer
        )


def test_an_inspection_sees_every_row_once_also_those_that_cleaning_empties(night, tiny_task):
    found = inspected(night, tiny_task, None).statistics()
    assert (found.task, found.date, found.rows, found.rejected) == ("tiny", "2026-11-28", 6, 3)
    assert found.contract_version == tiny_task.contract_version
    assert found.null_share == {"ticket_id": 0, "subject": 0.4, "body": 0}
    assert found.text.rejected == {
        "duplicate_id": 1, "empty_after_cleaning": 1, "invalid_json": 1,
    }  # fmt: skip
    assert (found.text.texts, found.text.distinct) == (3, 2)
    assert found.text.cleaned["html"] == 1
    assert (found.text.tokenized, found.text.unknown_share) == (0, None)


def test_tokens_are_counted_where_a_tokenizer_is_at_hand(night, tiny_task, tiny_tokenizer_path):
    tokenizer = BackboneTokenizer(tiny_tokenizer_path)
    text = inspected(night, tiny_task, tokenizer).statistics().text
    assert text.tokenized == 3
    assert text.windows.largest == 1
    assert text.tokens.largest > 5


def test_of_many_texts_the_same_sample_is_tokenized_each_time(
    night, tiny_task, tiny_tokenizer_path, monkeypatch
):
    path = night.root / f"incoming/tiny/date={DAY}/a.jsonl"
    rows = ({"ticket_id": f"{n}", "subject": None, "body": f"help {n}"} for n in range(200))
    path.write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr("pipeline.inspection._SAMPLED_TEXTS", 50)
    tokenizer = BackboneTokenizer(tiny_tokenizer_path)
    first, second = (inspected(night, tiny_task, tokenizer).statistics() for _ in range(2))
    assert first == second
    assert first.text.texts == 200
    assert 30 < first.text.tokenized < 70
