"""Near-equal texts are found in any script, and no others."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.engines.near_duplicates import bands_for, jaccard, near_matches

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
LONG = {
    "en": "the parcel arrived two weeks late and the box was open so please send me a new one soon",
    "zh": "包裹晚了两个星期才到而且箱子是打开的请尽快给我寄一个新的否则我要求全额退款",
    "th": "พัสดุมาถึงช้าสองสัปดาห์และกล่องถูกเปิดออกแล้วกรุณาส่งชิ้นใหม่มาให้โดยเร็วที่สุดขอบคุณ",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_small_change_is_found_in_any_script(text: str) -> None:
    changed = text[:-2] + "x"
    others = [other for other in LONG.values() if other != text]
    found = near_matches([changed, *others], ["far away from it all", text], similarity=0.85)
    assert found == {changed: text}


def test_the_most_similar_of_several_is_told() -> None:
    text = LONG["en"]
    among = [text + " thank you", text + "!", text[2:]]
    assert near_matches([text], among, similarity=0.8) == {text: text + "!"}


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_sketch_never_decides_alone(cut: int) -> None:
    """A pair just under the bound is no match, whatever its estimate says."""
    text = "abcdefghijklmnopqrstuvwxyz0123456789" + LONG["zh"]
    others = len(text) - 3 - cut
    measured = others / (others + cut)
    assert near_matches([text], [text[cut:]], similarity=measured) == {text: text[cut:]}
    assert near_matches([text], [text[cut:]], similarity=measured + 1e-9) == {}


@pytest.mark.parametrize("empty", [([], ["a"]), (["a"], []), ([], [])])
def test_nothing_matches_nothing(empty: tuple[list[str], list[str]]) -> None:
    assert near_matches(*empty, similarity=0.9) == {}


@pytest.mark.parametrize("text", ["", "a", "abc", "abcd"])
def test_a_text_shorter_than_a_shingle_is_its_own_only_one(text: str) -> None:
    assert near_matches([text], [text], similarity=1.0) == {text: text}
    assert near_matches([text], [text + "e"], similarity=0.9) == {}


@given(
    texts=st.lists(st.text("ab你é", max_size=12), max_size=12, unique=True),
    among=st.lists(st.text("ab你é", max_size=12), max_size=12, unique=True),
    similarity=st.sampled_from([0.51, 0.7, 0.85, 1.0]),
)
@settings(deadline=None)
def test_a_match_is_at_least_as_similar_as_asked(
    texts: list[str], among: list[str], similarity: float
) -> None:
    found = near_matches(texts, among, similarity=similarity)
    for text, match in found.items():
        shingles = {text[at : at + 4] for at in range(max(1, len(text) - 3))}
        assert jaccard(shingles, match) >= similarity
    assert {text for text in texts if text in among} <= set(found)
    assert near_matches(texts, among, similarity=similarity) == found


@pytest.mark.parametrize(
    ("similarity", "bands"), [(1.0, 4), (0.95, 8), (0.85, 16), (0.75, 32), (0.51, 64)]
)
def test_bands_follow_from_the_similarity(similarity: float, bands: int) -> None:
    assert bands_for(similarity) == bands
    assert 1 - (1 - similarity ** (128 // bands)) ** bands >= 0.98


def test_variants_of_a_form_letter_do_not_cost_their_square() -> None:
    """Each is like all others, some below the bound: candidates are counted to a limit."""
    form = "your order {0} of {0} with number {0} was sent by {0} and will arrive on {0} at {0}"
    held, train = (
        [form.format(f"{n * 7919 % 99991:05d}") for n in numbers]
        for numbers in (range(400), range(400, 3400))
    )
    started = time.process_time()
    near_matches(train, held, similarity=0.85)
    assert time.process_time() - started < 5


@pytest.mark.needs_shared_data
@pytest.mark.skipif(not SHARED.exists(), reason="the public data sets are not here")
def test_forty_thousand_texts_take_seconds() -> None:
    train, held = (
        [
            text
            for split in splits
            for text in pq.read_table(SHARED / "pros_cons" / f"{split}.parquet")["text"].to_pylist()
        ]
        for splits in (["train"], ["valid", "test"])
    )
    assert len(train) + len(held) > 40_000
    started = time.process_time()
    found = near_matches(train, held, similarity=0.85)
    assert time.process_time() - started < 30
    # As counted: 19 pairs such as "Good picture" and "Good pictures".
    assert 15 <= len(found) <= 25
