"""Answers kept between nights: the same to the last bit, and nothing that anybody misses."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import logging
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline.score_cache
from pipeline.bundle import scoring_flow
from pipeline.cascade import Saving
from pipeline.flow import Prepared
from pipeline.heads import Answer, decide, head_slices
from pipeline.inference import Inferred
from pipeline.rows import RawRow, Record
from pipeline.score_cache import CachedInference, ScoreCache, cache_key, trim
from pipeline.score_segments import read_segment, write_segment
from pipeline.tables import Lineage, scores_table
from schemas.bundle import Host
from schemas.head import HeadConfig, OutsideConfig
from schemas.manifest import ModelRef
from schemas.scope import ScopeRule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from schemas.task import TaskConfig

HEADS = head_slices(
    {
        "queue": HeadConfig(column="q", labels=("a", "b", "c"), review_below=0.5),
        "topics": HeadConfig(kind="multi", column="t", labels=("x", "y"), review_below=0.0),
    }
)
HOST = Host(cpu_features=("avx2",), onnxruntime="1.32.0")
MANY = 1 << 30


def hash_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:32]


def item(number: int) -> Prepared:
    return Prepared(
        record=Record(f"r{number}", "file", number, ("text",), {}, b""), texts=("text",),
        text_hash=hash_of(number), lang="en", flags=(), truncated=False,
    )  # fmt: skip


def inferred(number: int) -> Inferred:
    chance = np.random.default_rng(number)
    queue, topics = chance.dirichlet([1, 1, 1]), chance.random(2)
    answers = {
        "queue": Answer(("abc"[int(queue.argmax())],), float(queue.max()), queue, number % 2),
        "topics": Answer(
            tuple(label for label, p in zip("xy", topics, strict=True) if p >= 0.5),
            float(np.maximum(topics, 1 - topics).min()), topics,
        ),
    }  # fmt: skip
    return Inferred(
        answers=answers, decision=decide(answers, HEADS), spans=((0, 5), (3, 9)),
        truncated=number % 3 == 0, windows_made=2, windows_aggregated=2, tokens=number,
    )  # fmt: skip


class FakeInference:
    """Answers by the number in the record's name; it counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
        self.asked += [each.record.record_id for each in items]
        return [inferred(each.record.source_row) for each in items]


def cache(folder: Path, night: str = "2026-11-28", max_bytes: int = MANY) -> ScoreCache:
    return ScoreCache(folder, HEADS, night=night, max_bytes=max_bytes)


def same(mine: Inferred, theirs: Inferred) -> bool:
    """Equal to the last bit, whether remembered or not."""
    if list(mine.answers) != list(theirs.answers):
        return False
    plain = [dataclasses.replace(each, answers={}, remembered=False) for each in (mine, theirs)]
    return plain[0] == plain[1] and all(
        (a.labels, a.confidence, a.window, a.scores.tobytes())
        == (b.labels, b.confidence, b.window, b.scores.tobytes())
        for a, b in zip(mine.answers.values(), theirs.answers.values(), strict=True)
    )


@given(st.sets(st.integers(1, 10_000), min_size=1, max_size=40))
def test_an_answer_comes_back_as_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, numbers: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    given_answers = {hash_of(number): inferred(number) for number in numbers}
    cache(folder).keep(given_answers)
    found = cache(folder).find([*given_answers, hash_of(10_001)])
    assert found.keys() == given_answers.keys()
    assert all(same(found[name], given_answers[name]) for name in found)
    assert all(each.remembered for each in found.values())


def test_a_text_is_inferred_once_by_all_workers_and_nights(tmp_path: Path) -> None:
    models = FakeInference(), FakeInference(), FakeInference()
    first, second = (CachedInference(model, cache(tmp_path)) for model in models[:2])
    first.infer([item(1), item(2)])
    assert [each.remembered for each in second.infer([item(3), item(2)])] == [False, True]
    # What the other worker has written since it began.
    assert [each.remembered for each in first.infer([item(3), item(4)])] == [True, False]
    tomorrow = CachedInference(models[2], cache(tmp_path, night="2026-11-29"))
    answers = tomorrow.infer([item(4), item(5), item(1)])
    assert [each.tokens for each in answers] == [4, 5, 1]
    assert [model.asked for model in models] == [["r1", "r2", "r4"], ["r3"], ["r5"]]


def test_an_answer_that_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    class Poisoned(FakeInference):
        def infer(self, items: Sequence[Prepared]) -> list[Inferred]:
            return [dataclasses.replace(each, answers={}) for each in super().infer(items)]

    model = Poisoned()
    for _ in range(2):
        assert CachedInference(model, cache(tmp_path)).infer([item(1)])[0].answers == {}
    assert model.asked == ["r1", "r1"]


def test_thresholds_may_change_from_night_to_night(tmp_path: Path) -> None:
    answer = next(inferred(n) for n in range(1, 99) if inferred(n).decision == "auto")
    cache(tmp_path).keep({hash_of(1): answer})
    strict = tuple(
        dataclasses.replace(head, config=head.config.model_copy(update={"review_below": 1.0}))
        for head in HEADS
    )
    found = ScoreCache(tmp_path, strict, night="2026-11-28", max_bytes=MANY).find([hash_of(1)])
    assert found[hash_of(1)].decision == "review"


def _damage(folder: Path, how: str) -> None:
    (answers,), (keys,) = folder.rglob("*.parquet"), folder.rglob("*.keys")
    content = answers.read_bytes()
    if how == "cut off":
        answers.write_bytes(content[:-9])
    elif how == "altered":
        middle = len(content) // 2
        answers.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif how == "empty":
        answers.write_bytes(b"")
    elif how == "gone":
        answers.unlink()
    elif how == "keys cut off":
        keys.write_bytes(keys.read_bytes()[:-3])
    elif how == "keys of others":
        keys.write_bytes(keys.read_bytes()[::-1])
    else:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "how",
    ["cut off", "altered", "empty", "gone", "keys cut off", "keys of others", "folder gone"],
)
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_damaged_segment_only_costs_the_saving(tmp_path: Path, how: str, when: str) -> None:
    folder = tmp_path / "cache"
    cache(folder).keep({hash_of(number): inferred(number) for number in (1, 2)})
    model = FakeInference()
    worker = CachedInference(model, cache(folder))
    if when == "while":
        worker.infer([item(1)])
    _damage(folder, how)
    answers = worker.infer([item(1), item(2)])
    assert all(same(answers[index], inferred(index + 1)) for index in range(2))
    # Who has read the keys does not look at them again.
    missed = when == "before" or not how.startswith("keys")
    assert set(model.asked) == ({"r1", "r2"} if missed else set())
    CachedInference(FakeInference(), cache(folder)).infer([item(1), item(2)])
    again = CachedInference(FakeInference(), cache(folder)).infer([item(1), item(2)])
    assert all(each.remembered for each in again)  # they were kept anew


def test_a_segment_of_other_columns_is_a_miss(tmp_path: Path) -> None:
    keys = write_segment(tmp_path, {hash_of(1): inferred(1)}, HEADS)
    other = head_slices({"mood": HeadConfig(column="m", labels=("bad", "good"))})
    assert read_segment(keys, [hash_of(1)], other) == {}


def test_two_texts_of_one_key_are_told_apart(tmp_path: Path) -> None:
    one, other = "ab" * 8 + "0" * 16, "ab" * 8 + "1" * 16
    cache(tmp_path).keep({one: inferred(1)})
    assert cache(tmp_path).find([other]) == {}
    cache(tmp_path).keep({other: inferred(2)})
    found = cache(tmp_path).find([one, other])  # at least one of them, and each its own
    expected = {one: inferred(1), other: inferred(2)}
    assert found
    assert all(same(found[name], expected[name]) for name in found)


def test_a_full_disk_only_costs_the_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pipeline.score_cache, "write_segment", full)
    with caplog.at_level(logging.WARNING):
        (answer,) = CachedInference(FakeInference(), cache(tmp_path)).infer([item(1)])
    assert same(answer, inferred(1))
    assert "No space left on device" in caplog.text


def _fill(folder: Path, key: str, night: str, number: int) -> None:
    cache(folder / key, night).keep({hash_of(number): inferred(number)})


def test_the_oldest_nights_go_first_whatever_the_clock_says(tmp_path: Path) -> None:
    nights = ["2026-11-28", "2026-11-26", "2026-11-27"]  # written in this order
    for number, night in enumerate(nights, start=1):
        _fill(tmp_path, "old-model" if number == 2 else "model", night, number)
    sizes = {
        night: sum(path.stat().st_size for path in tmp_path.glob(f"*/date={night}/*"))
        for night in nights
    }
    assert trim(tmp_path, max_bytes=sum(sizes.values())) == sum(sizes.values())
    left = trim(tmp_path, max_bytes=sizes["2026-11-28"] + sizes["2026-11-27"])
    assert left == sizes["2026-11-28"] + sizes["2026-11-27"]
    assert {path.name for path in tmp_path.glob("*/date=*")} == {
        "date=2026-11-27",
        "date=2026-11-28",
    }
    trim(tmp_path, max_bytes=0)
    assert list(tmp_path.glob("*/*")) == []
    assert trim(tmp_path / "never", max_bytes=0) == 0


def test_a_night_writes_no_more_than_the_bound(tmp_path: Path) -> None:
    small = cache(tmp_path, max_bytes=1)
    small.keep({hash_of(1): inferred(1)})
    small.keep({hash_of(2): inferred(2)})
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_only_answers_of_equal_bytes_share_a_name() -> None:
    key = cache_key("d", device="cpu", host=HOST)
    assert key == cache_key("d", device="cpu", host=HOST.model_copy())
    others = {
        cache_key("e", device="cpu", host=HOST),
        cache_key("d", device="gpu", host=HOST),
        cache_key("d", device="cpu", host=HOST.model_copy(update={"onnxruntime": "1.33.0"})),
        cache_key("d", device="cpu", host=HOST.model_copy(update={"cpu_features": ()})),
    }
    assert key not in others
    assert len(others) == 4


def test_the_bytes_of_a_night_are_the_same_with_and_without_a_cache(
    tiny_bundle: Path, tiny_task: TaskConfig, tmp_path: Path
) -> None:
    rows = [
        RawRow("a", n, {"ticket_id": f"t{n}", "subject": "invoice", "body": text}, b"raw")
        for n, text in enumerate(["card " * (n % 50 + 1) for n in range(60)] + ["late parcel"] * 3)
    ]
    lineage = Lineage(dt.date(2026, 11, 28), ModelRef(name="m", version="1", digest="d"), "c", "r")

    def night(saving: Saving) -> tuple[bytes, Any, int]:
        outcome = scoring_flow(tiny_bundle, tiny_task, saving=saving).score(rows)
        sink = pa.BufferOutputStream()
        pq.write_table(scores_table(outcome.scored, tiny_task.heads, lineage), sink)
        return sink.getvalue().to_pybytes(), outcome.counters, outcome.texts_remembered

    without = night(Saving())
    first = night(Saving(cache=tmp_path, night="2026-11-28"))
    second = night(Saving(cache=tmp_path, night="2026-11-29"))
    assert first[:2] == second[:2] == without[:2]
    assert (without[2], first[2], second[2]) == (0, 0, 51)


def test_what_fits_no_label_is_remembered_as_such(tmp_path: Path) -> None:
    rule = ScopeRule(method="energy", threshold=0.3, kept=1, rows_inside=9, rows_outside=0)
    config = HeadConfig(column="q", labels=("a", "b"), outside=OutsideConfig(), review_below=0.0)
    heads = head_slices({"queue": config}, scopes={"queue": rule})
    scores = {hash_of(0): 0.1 + 0.2, hash_of(1): 0.1}
    given_answers = {
        name: Inferred(
            {"queue": Answer(("a",), 0.9, np.array([0.9, 0.1]), 0, score, score < 0.3)},
            "auto", ((0, 5),), truncated=False,
        )
        for name, score in scores.items()
    }  # fmt: skip
    found = read_segment(write_segment(tmp_path, given_answers, heads), list(scores), heads)
    told = {name: each.answers["queue"] for name, each in found.items()}
    assert {name: answer.scope for name, answer in told.items()} == scores
    assert [told[name].outside for name in scores] == [False, True]
    assert [found[name].decision for name in scores] == ["auto", "review"]
    unasked = write_segment(tmp_path / "unasked", given_answers, head_slices({"queue": config}))
    assert read_segment(unasked, list(scores), heads) == {}  # its answers lack what is asked for
