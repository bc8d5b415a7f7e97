"""What stands in a held-out split trains nothing, and contradicting labels are told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.leakage import conflicting_labels, without_leaks
from pipeline.model.labelled import Example, Split

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
LONG = "the parcel arrived two weeks late and the box was open so please send me a new one"
SPLITS = st.sampled_from(get_args(Split))


def example(
    name: str,
    split: Split,
    text: str,
    *,
    targets: Mapping[str, int | tuple[int, ...] | None] | None = None,
) -> Example:
    return Example(name, text, split, "en", (text,), (), targets or {})


def names(examples: list[Example]) -> list[str]:
    return [item.record_id for item in examples]


def test_equal_and_nearly_equal_texts_are_left_out_of_what_is_held_out_from_them() -> None:
    examples = [
        example("a", "train", LONG + " now"),
        example("b", "train", "Good!"),
        example("c", "train", "something else"),
        example("d", "valid", "good"),
        example("e", "valid", LONG.upper()),
        example("f", "valid", "quite another text"),
        example("g", "test", LONG),
        example("h", "train", "good..."),
        example("i", "train", "good..."),
    ]
    kept, leakage = without_leaks(examples, similarity=0.85)
    assert names(kept) == ["c", "d", "f", "g"]
    assert leakage.counts == {"valid-test": 1, "train-test": 1, "train-valid": 3}
    assert leakage.examples["train-test"] == (("a", "g"),)
    assert leakage.examples["train-valid"] == (("b", "d"), ("h", "d"), ("i", "d"))
    assert str(leakage) == (
        "1 of valid that are in test (for example e like g), "
        "1 of train that are in test (for example a like g), "
        "3 of train that are in valid (for example b like d, h like d, i like d)"
    )


def test_without_a_similarity_only_equal_texts_are_left_out() -> None:
    examples = [
        example("a", "train", LONG + " now"),
        example("b", "train", LONG + "!"),
        example("c", "test", LONG),
    ]
    kept, leakage = without_leaks(examples, similarity=None)
    assert names(kept) == ["a", "c"]
    assert leakage.counts == {"valid-test": 0, "train-test": 1, "train-valid": 0}


def test_a_text_that_valid_loses_to_test_no_longer_guards_train() -> None:
    """The middle of a chain of ever less similar texts is gone, so its neighbour may train."""
    chain = [LONG + " please hurry" * 2, LONG + " please hurry", LONG]
    examples = [
        example(split, split, text)
        for split, text in zip(get_args(Split), chain, strict=True)
    ]  # fmt: skip
    kept, leakage = without_leaks(examples, similarity=0.85)
    assert names(kept) == ["train", "test"]
    assert leakage.counts == {"valid-test": 1, "train-test": 0, "train-valid": 0}


@pytest.mark.parametrize(
    ("one", "other"),
    [("👍", "👎"), ("ดี", "ดู"), ("की", "का"), ("!!!", "???"), ("❤️", "☀️"), ("1", "2")],
)
def test_short_texts_of_few_letters_are_not_taken_for_each_other(one: str, other: str) -> None:
    kept, _ = without_leaks(
        [example("a", "train", one), example("b", "test", other), example("c", "train", other)],
        similarity=0.85,
    )
    assert names(kept) == ["a", "b"]


@given(st.lists(st.tuples(SPLITS, st.text("aB ", max_size=4)), max_size=30))
@settings(deadline=None)
def test_what_is_kept_is_in_order_and_its_texts_never_straddle_splits(
    rows: list[tuple[Split, str]],
) -> None:
    examples = [example(str(n), split, text) for n, (split, text) in enumerate(rows)]
    kept, leakage = without_leaks(examples, similarity=0.9)
    assert [int(name) for name in names(kept)] == sorted(int(name) for name in names(kept))
    assert sum(leakage.counts.values()) == len(examples) - len(kept)
    assert [item for item in examples if item.split == "test"] == [
        item for item in kept if item.split == "test"
    ]
    splits: dict[str, set[str]] = {}
    for item in kept:
        plain = item.texts[0].replace(" ", "").lower() or item.texts[0]
        splits.setdefault(plain, set()).add(item.split)
    assert all(len(found) == 1 for found in splits.values())


def test_conflicting_labels_are_counted_by_text_and_head() -> None:
    examples = [
        example("a", "train", "x", targets={"queue": 1, "topics": (0, 1)}),
        example("b", "train", "x", targets={"queue": 2, "topics": (0, 1)}),
        example("c", "train", "x", targets={"queue": 1, "topics": None}),
        example("d", "train", "y", targets={"queue": 1, "topics": (1, 1)}),
        example("e", "train", "y", targets={"queue": None, "topics": (1, 0)}),
        example("f", "train", "z", targets={"queue": 0, "topics": (1, 0)}),
        example("g", "test", "z", targets={"queue": 1, "topics": (1, 0)}),
    ]
    conflicts = conflicting_labels(examples, ["queue", "topics"])
    assert conflicts.counts == {"queue": 2, "topics": 1}
    assert conflicts.examples == {"queue": ("a", "b", "f"), "topics": ("d", "e")}
    assert str(conflicts) == (
        "2 of head 'queue' (for example a, b, f), 1 of head 'topics' (for example d, e)"
    )


def test_nothing_at_all() -> None:
    kept, leakage = without_leaks([], similarity=0.85)
    assert kept == []
    assert str(leakage) == "0 of valid that are in test, 0 of train that are in test, " \
        "0 of train that are in valid"  # fmt: skip
    assert conflicting_labels([], ["queue"]).counts == {"queue": 0}


def read(name: str) -> list[Example]:
    """A public set with its official splits, which its makers did not keep apart."""
    labels = ["counterfactual", "not_counterfactual"]
    return [
        example(row["id"], split, row["text"], targets={"label": labels.index(row["label"])})
        for split in get_args(Split)
        for row in pq.read_table(DATA / name / f"{split}.parquet").to_pylist()
    ]


@pytest.mark.needs_shared_data
@pytest.mark.skipif(not DATA.exists(), reason=f"no public data sets in {DATA}")
def test_the_known_repeats_of_a_public_set_are_found() -> None:
    """1,131 texts of amazon_counterfactual stand in train and test alike, as its notes count."""
    examples = read("amazon_counterfactual")
    kept, equal = without_leaks(examples, similarity=None)
    assert equal.counts == {"valid-test": 83, "train-test": 1142, "train-valid": 554}
    assert len(kept) == len(examples) - 83 - 1142 - 554
    of_test = {plain(item) for item in kept if item.split == "test"}
    leaked = {plain(item) for item in examples if item.split == "train"} & of_test
    assert len(leaked) == 1131
    assert not {plain(item) for item in kept if item.split == "train"} & of_test
    _, near = without_leaks(examples, similarity=0.85)
    assert near.counts == {"valid-test": 83, "train-test": 1145, "train-valid": 554}
    assert conflicting_labels(examples, ["label"]).counts == {"label": 16}


def plain(item: Example) -> str:
    return re.sub(r"[\W_]+", "", item.texts[0].lower())
