from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.rows import RawRow, Rejected
from pipeline.seen_values import SeenValues
from schemas.reasons import Reason, Stage


def repeats_of(values) -> list[int]:
    seen = SeenValues(("id",))
    for number, value in enumerate(values):
        seen.add(RawRow("a.csv", number, {"id": value}, b""))
    return seen.repeats()["id"]


@given(st.lists(st.sampled_from([None, " ", "a", " a", "b", "c", 1, 1.0, "1", True])))
def test_all_but_the_first_row_with_a_value_are_repeats(values):
    seen: set[str] = set()
    expected = []
    for number, value in enumerate(values):
        text = str(value).lower() if isinstance(value, bool) else str(value or "").strip()
        text = text.removesuffix(".0")
        if text and text in seen:
            expected.append(number)
        seen.add(text)
    assert repeats_of(values) == expected


def test_columns_are_told_apart_and_a_rejected_row_claims_nothing():
    seen = SeenValues(("id", "mail"))
    seen.add(Rejected(None, "a", 0, Stage.READ, Reason.MALFORMED_ROW, "", b""))
    seen.add(RawRow("a", 1, {"id": "x", "mail": "m"}, b""))
    seen.add(RawRow("a", 2, {"id": "m", "mail": "m"}, b""))
    assert seen.repeats() == {"id": [], "mail": [2]}


def test_many_values_need_16_bytes_a_row():
    seen = SeenValues(("id",))
    for number in range(50_000):
        seen.add(RawRow("a", number, {"id": str(number % 49_999)}, b""))
    assert seen.repeats() == {"id": [49_999]}
    assert sum(len(digests) for digests in seen._digests.values()) == 16 * 50_000


def test_no_rows_repeat_nothing():
    assert repeats_of([]) == []
