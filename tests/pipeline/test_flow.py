"""The steps in their order: nothing is lost, nothing is answered for another row."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clean import Cleaner
from pipeline.flow import Outcome, Prepared, ScoringFlow, TextFlow, check_conservation, hash_of
from pipeline.heads import head_slices
from pipeline.inference import ModelInference
from pipeline.rows import RawRow, Rejected
from pipeline.validate import Validator
from pipeline.window import Tokens, Window, WindowTemplate
from schemas.errors import ConfigError, ShardError
from schemas.manifest import Counters
from schemas.reasons import Reason, Stage
from schemas.task import CleanConfig, ContractConfig, DataConfig, HeadConfig, WindowConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

HEADS = {"topic": HeadConfig(column="topic", labels=("even", "odd"), review_below=0.6)}
POISON = "poison"
TEXTS = st.sampled_from(["a", "b", "ab", "long " * 12, "", " \u200b ", POISON, "[SEP]", None, 7])


class FakeTokenizer:
    """A token for each character, its id the code point."""

    single = WindowTemplate(gaps=((1,), (2,)), types=(0,), gap_types=((0,), (0,)))
    pair = WindowTemplate(gaps=((1,), (2,), (2,)), types=(0, 1), gap_types=((0,), (0,), (1,)))

    def tokenize(self, texts: list[str]) -> list[Tokens]:
        return [
            Tokens(tuple(map(ord, text)), tuple((i, i + 1) for i in range(len(text))))
            for text in texts
        ]


class FakeEncoder:
    """Scores from the sum of a window's ids; NaN for the poisonous text. It counts its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Window, ...]] = []

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        self.calls.append(tuple(windows))
        return np.array([self._row(window) for window in windows], dtype=np.float32)

    @staticmethod
    def _row(window: Window) -> list[float]:
        total = sum(window.input_ids)
        poisonous = POISON in "".join(map(chr, window.input_ids))
        return [float("nan"), 0.0] if poisonous else [float(total % 7), float(total % 5)]


def text_flow(
    *,
    columns: tuple[str, ...] = ("text",),
    contract: ContractConfig | None = None,
    with_tokenizer: bool = True,
    detect_language: Callable[[str], str] = lambda text: "xx" if text else "und",
    first_window_only: bool = False,
) -> TextFlow:
    return TextFlow(
        Validator(
            DataConfig(incoming="x", id_column="id", text_columns=columns),
            contract or ContractConfig(),
        ),
        Cleaner(CleanConfig(), special_tokens=("[SEP]",)),
        FakeTokenizer() if with_tokenizer else None,
        WindowConfig(max_tokens=16, stride_tokens=4, max_chars=100),
        detect_language=detect_language,
        first_window_only=first_window_only,
    )


def rows(*texts: Any, ids: Sequence[str | None] | None = None) -> list[RawRow]:
    names = ids or [f"r{number}" for number in range(len(texts))]
    return [
        RawRow("file", number, {"id": name, "text": text}, f"raw {number}".encode())
        for number, (name, text) in enumerate(zip(names, texts, strict=True))
    ]


def scoring(text: TextFlow, encoder: FakeEncoder | None = None) -> ScoringFlow:
    return ScoringFlow(text, ModelInference(text, encoder or FakeEncoder(), head_slices(HEADS)))


def score(items: Sequence[RawRow | Rejected], encoder: FakeEncoder | None = None) -> Outcome:
    return scoring(text_flow(), encoder).score(items)


def reading_trouble(number: int) -> Rejected:
    return Rejected(None, "file", number, Stage.READ, Reason.INVALID_JSON, "bad", b"raw")


@given(st.lists(st.tuples(TEXTS, st.booleans(), st.booleans()), max_size=30))
def test_every_row_is_scored_or_quarantined_once(mix: list[tuple[Any, bool, bool]]) -> None:
    """FAILURES rows 5 to 7: the conservation law, for any mix of rows."""
    items: list[RawRow | Rejected] = []
    for number, (text, has_id, readable) in enumerate(mix):
        values = {"id": f"r{number}" if has_id else None, "text": text}
        row = RawRow("file", number, values, b"raw")
        items.append(row if readable else reading_trouble(number))
    outcome = score(items)
    scored = [item.prepared.record.source_row for item in outcome.scored]
    rejected = [item.source_row for item in outcome.rejected]
    assert sorted(scored + rejected) == list(range(len(items)))
    assert scored == sorted(scored)
    assert rejected == sorted(rejected)
    counters = outcome.counters
    assert counters.rows_read == len(items)
    assert (counters.rows_scored, counters.rows_quarantined) == (len(scored), len(rejected))
    assert sum(counters.quarantined_by_reason.values()) == len(rejected)
    assert counters.windows_made == counters.windows_aggregated


@pytest.mark.parametrize(
    ("text", "stage", "reason"),
    [
        (None, Stage.VALIDATE, Reason.MISSING_TEXT),
        ("   ", Stage.VALIDATE, Reason.MISSING_TEXT),
        (float("nan"), Stage.VALIDATE, Reason.MISSING_TEXT),
        (7, Stage.VALIDATE, Reason.WRONG_TYPE),
        ("\u200b\u200b", Stage.CLEAN, Reason.EMPTY_AFTER_CLEANING),
        ("<br><br>", Stage.CLEAN, Reason.EMPTY_AFTER_CLEANING),
        (POISON, Stage.INFER, Reason.NON_FINITE_SCORE),
    ],
)
def test_a_rejected_row_tells_its_stage_and_reason(text: Any, stage: Stage, reason: Reason) -> None:
    """FAILURES row 37: null, blank and non-text values are quarantined, not crashed on."""
    outcome = score(rows("a", text, "b"))
    (rejected,) = outcome.rejected
    assert (rejected.stage, rejected.reason) == (stage, reason)
    assert (rejected.record_id, rejected.source_row, rejected.raw) == ("r1", 1, b"raw 1")
    assert outcome.counters.quarantined_by_reason == {reason.value: 1}
    assert [item.prepared.record.record_id for item in outcome.scored] == ["r0", "r2"]


def test_what_was_rejected_while_reading_passes_through() -> None:
    trouble = reading_trouble(1)
    outcome = score([rows("a")[0], trouble])
    assert outcome.rejected == [trouble]
    assert outcome.counters.rows_read == 2


def test_equal_texts_are_inferred_once_and_answered_for_each_record() -> None:
    encoder = FakeEncoder()
    outcome = score(rows("a", "b", " a ", "<b>a</b>", "b"), encoder)
    assert sum(map(len, encoder.calls)) == outcome.counters.texts_inferred == 2
    assert len(outcome.scored) == outcome.counters.rows_scored == 5
    answers = [item.answers["topic"] for item in outcome.scored]
    assert answers[0] is answers[2] is answers[3]
    assert answers[1] is answers[4]
    hashes = [item.prepared.text_hash for item in outcome.scored]
    assert hashes[0] == hashes[2] == hashes[3] != hashes[1] == hashes[4]


def test_a_poisonous_text_is_quarantined_each_time_it_comes() -> None:
    """FAILURES row 30: NaN scores never reach the output; the other rows do."""
    encoder = FakeEncoder()
    outcome = score(rows(POISON, "a", POISON), encoder)
    assert [row.record_id for row in outcome.rejected] == ["r0", "r2"]
    assert outcome.counters.quarantined_by_reason == {"non_finite_score": 2}
    assert sum(map(len, encoder.calls)) == 2
    assert np.isfinite(outcome.scored[0].answers["topic"].scores).all()


@given(st.permutations(["a", "b", "ab", "abc", "zz", "long" * 12]))
def test_answers_follow_the_record_never_the_position(texts: list[str]) -> None:
    """FAILURES row 10: the same record has the same answer wherever it stands."""
    outcome = score(rows(*texts, ids=[f"id of {text}" for text in texts]))
    for item in outcome.scored:
        (alone,) = score(rows(item.prepared.record.values["text"])).scored
        assert item.prepared.record.record_id == f"id of {item.prepared.record.values['text']}"
        assert item.answers["topic"].scores.tolist() == alone.answers["topic"].scores.tolist()


def test_a_giant_text_is_cut_and_flagged() -> None:
    """FAILURES row 39: no row costs unbounded time; row 38: what is cut is told."""
    encoder = FakeEncoder()
    outcome = score(rows("x" * 100_000, "y" * 100), encoder)
    giant, whole = outcome.scored
    assert (giant.truncated, whole.truncated) == (True, False)
    assert sum(len(windows) for windows in encoder.calls) == len(giant.spans + whole.spans)
    assert len(giant.spans) == len(whole.spans) == 10
    assert giant.prepared.texts == ("x" * 100,)


def test_a_long_text_is_the_weighted_mean_of_its_windows() -> None:
    outcome = score(rows("abcdefghijklmnopqrstuvwxyz"))
    (item,) = outcome.scored
    assert len(item.spans) == 3
    assert item.answers["topic"].scores.sum() == pytest.approx(1.0)
    assert outcome.counters.windows_made == 3
    # 26 letters, two windows overlap by 4 each, and 2 control tokens a window.
    assert outcome.counters.tokens_inferred == 26 + 2 * 4 + 3 * 2


def test_a_score_is_traced_to_its_span_of_the_cleaned_body() -> None:
    outcome = score(rows("  <b>abcdefgh</b>  ijklmnop qrstuvwx yz "))
    (item,) = outcome.scored
    (body,) = item.prepared.texts
    assert body == "abcdefgh ijklmnop qrstuvwx yz"
    assert [body[start:end] for start, end in item.spans] == [
        "abcdefgh ijklm", "jklmnop qrstuv", "stuvwx yz",
    ]  # fmt: skip
    encoder = FakeEncoder()
    alone = [
        score(rows(body[start:end]), encoder).scored[0].answers["topic"].scores
        for start, end in item.spans
    ]
    telling = item.answers["topic"]
    best = int(telling.scores.argmax())
    assert telling.window == int(np.argmax([scores[best] for scores in alone]))


def test_a_subject_alone_has_an_empty_span() -> None:
    flow = scoring(text_flow(columns=("subject", "body")))
    outcome = flow.score([RawRow("f", 0, {"id": "1", "subject": "ab", "body": ""}, b"")])
    assert outcome.scored[0].spans == ((0, 0),)


def test_a_subject_that_does_not_fit_is_flagged() -> None:
    """FAILURES row 38: text that is in no window is told, also that of the head of a pair."""
    flow = scoring(text_flow(columns=("subject", "body")))
    outcome = flow.score(
        RawRow("f", n, {"id": str(n), "subject": "s" * n, "body": "b" * 50}, b"") for n in (5, 90)
    )
    assert [item.truncated for item in outcome.scored] == [False, True]
    assert all(item.spans[-1][1] == 50 for item in outcome.scored)


def test_failure_40_a_giant_text_is_cut_between_graphemes() -> None:
    family = "👨\u200d👩\u200d👧"
    outcome = score(rows("x" * 97 + family * 3, "é" * 99 + "e\u0301" * 9))
    assert [item.prepared.texts[0][-2:] for item in outcome.scored] == ["xx", "éé"]
    assert [item.truncated for item in outcome.scored] == [True, True]


@pytest.mark.parametrize(
    "unit", ["The parcel is late. ", "\u0301", "🇩🇪", "👨\u200d👩\u200d👧 ", "[SEP] <b>"]
)
def test_failure_39_a_record_of_50_mb_is_bounded_in_time_and_memory(unit: str) -> None:
    """One that is not rejected: the contract allows it, the window's `max_chars` cuts it."""
    told = subprocess.run(
        [sys.executable, "-c", GIANT, unit], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    seconds, megabytes, windows, truncated = told.split()
    assert truncated == "True"
    assert 1 <= int(windows) <= 2 * 100_000 / (254 - 64) + 2
    assert float(seconds) < 10
    assert float(megabytes) < 150


GIANT = """
import re, resource, sys, time
from pipeline.clean import Cleaner
from pipeline.flow import TextFlow
from pipeline.rows import RawRow
from pipeline.validate import Validator
from pipeline.window import Tokens, WindowTemplate
from schemas.task import CleanConfig, ContractConfig, DataConfig, WindowConfig

class Characters:
    single = WindowTemplate(gaps=((1,), (2,)), types=(0,), gap_types=((0,), (0,)))

    def tokenize(self, texts):
        places = [[match.span() for match in re.finditer(r"\\S", text)] for text in texts]
        return [Tokens(tuple(range(len(found))), tuple(found)) for found in places]

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

contract = ContractConfig(max_text_chars=100_000_000)
flow = TextFlow(
    Validator(DataConfig(incoming="x", id_column="id", text_columns=("text",)), contract),
    Cleaner(CleanConfig(), special_tokens=("[SEP]",)), Characters(), WindowConfig(),
    detect_language=lambda text: "xx",
)
list(flow.prepare([RawRow("f", 0, {"id": "0", "text": "warm <b>\u00e9</b> [SEP]"}, b"")]))
text = sys.argv[1] * (50_000_000 // len(sys.argv[1].encode()))
before, started = peak_mb(), time.perf_counter()
(prepared,) = flow.prepare([RawRow("f", 1, {"id": "1", "text": text}, b"")])
windows = flow.windows(prepared)
print(time.perf_counter() - started, peak_mb() - before, len(windows.windows), prepared.truncated)
"""


def test_two_text_columns_are_a_pair_and_a_border_is_no_text() -> None:
    encoder = FakeEncoder()
    flow = scoring(text_flow(columns=("subject", "body")), encoder)
    pairs = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")]
    outcome = flow.score(
        RawRow("f", n, {"id": str(n), "subject": s, "body": b}, b"")
        for n, (s, b) in enumerate(pairs)
    )
    assert len({item.prepared.text_hash for item in outcome.scored}) == 4
    first = encoder.calls[0][0]
    assert first.input_ids == (1, ord("a"), ord("b"), 2, ord("c"), 2)
    assert first.type_ids == (0, 0, 0, 0, 1, 1)


def test_counters_are_those_of_each_call() -> None:
    contract = ContractConfig.model_validate(
        {"columns": {"kind": {"required": True, "severity": "warn"}}}
    )
    flow = scoring(text_flow(contract=contract))
    first = flow.score(rows("a  a", "[SEP] b")).counters
    second = flow.score(rows("a  a")).counters
    assert first.warned == {"kind:required": 2}
    assert first.cleaned == {"special_tokens": 1, "whitespace": 2}
    assert second.warned == {"kind:required": 1}
    assert second.cleaned == {"whitespace": 1}


@pytest.mark.parametrize(
    ("severity", "rejected", "counted"),
    [
        ("reject", ["language_not_allowed"], "rejected"),
        ("stop", ["language_not_allowed"], "stopped"),
        ("warn", [], "warned"),
        ("review", [], None),
    ],
)
def test_a_language_that_the_contract_does_not_allow(
    severity: str, rejected: list[str], counted: str | None
) -> None:
    contract = ContractConfig.model_validate(
        {"languages": {"allowed": ["de"], "severity": severity}}
    )
    text = text_flow(contract=contract, detect_language=lambda text: text[:2])
    outcome = scoring(text).score(rows("de a", "fr  b"))
    assert [(row.reason.value, row.stage) for row in outcome.rejected] == [
        (reason, Stage.VALIDATE) for reason in rejected
    ]
    # A rejected text was not cleaned for anybody.
    assert outcome.counters.cleaned == ({} if rejected else {"whitespace": 1})
    for name in ("warned", "stopped"):
        wanted = {"lang:allowed": 1} if counted == name else {}
        assert getattr(outcome.counters, name) == wanted
    to_review = [(item.decision, item.prepared.flags) for item in outcome.scored][1:]
    if severity == "review":
        assert to_review == [("review", ("language", "whitespace"))]
    assert "language" not in outcome.scored[0].prepared.flags


def test_failure_36_a_lone_surrogate_is_replaced_and_flagged() -> None:
    """A data frame can hold what no text file can: half of a character."""
    outcome = score(rows("a \ud800 b", "fine"))
    assert [item.prepared.texts for item in outcome.scored] == [("a \ufffd b",), ("fine",)]
    assert outcome.scored[0].prepared.flags == ("unicode",)


def test_a_flow_without_a_tokenizer_prepares_but_makes_no_windows() -> None:
    flow = text_flow(with_tokenizer=False)
    (prepared,) = flow.prepare(rows("<b>a</b>"))
    assert isinstance(prepared, Prepared)
    assert prepared.texts == ("a",)
    with pytest.raises(ConfigError, match="made without a tokenizer"):
        flow.windows(prepared)


def test_rows_to_review_are_counted() -> None:
    outcome = score(rows("a", "b", "c", "d", "e"))
    unsure = [item for item in outcome.scored if item.answers["topic"].confidence < 0.6]
    assert outcome.counters.rows_to_review == len(unsure)
    assert {item.decision for item in unsure} <= {"review"}


def test_no_rows_at_all() -> None:
    assert score([]) == Outcome()


@pytest.mark.parametrize(
    ("counters", "message"),
    [
        (Counters(rows_read=3, rows_scored=1, rows_quarantined=1), "3 rows read, but 1 scored"),
        (Counters(rows_read=1, rows_scored=1, rows_quarantined=1), "1 rows read, but 1 scored"),
        (Counters(windows_made=2, windows_aggregated=1), "2 windows made, but 1 aggregated"),
    ],
)
def test_a_broken_law_is_an_error(counters: Counters, message: str) -> None:
    with pytest.raises(ShardError, match=f"^shard 7: {message}"):
        check_conservation(counters, what="shard 7")


def test_an_encoder_that_loses_a_window_is_caught() -> None:
    class Forgetful(FakeEncoder):
        def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
            return super().logits(windows)[:-1]

    with pytest.raises(ShardError, match="6 windows made, but the model answered 5"):
        score(rows("x" * 60), Forgetful())


def test_a_model_that_reads_the_first_window_gets_no_other() -> None:
    long, short = "a long text that takes several windows to read", "short"
    whole = scoring(text_flow()).score(rows(long, short))
    first = scoring(text_flow(first_window_only=True)).score(rows(long, short))
    assert [len(row.spans) for row in first.scored] == [1, 1]
    assert first.scored[0].spans[0] == whole.scored[0].spans[0]
    assert len(whole.scored[0].spans) > 1
    assert [row.truncated for row in first.scored] == [True, False]
    assert [row.truncated for row in whole.scored] == [False, False]
    assert first.counters.windows_made == first.counters.windows_aggregated == 2


def test_texts_and_their_borders_make_the_hash() -> None:
    assert hash_of(["a", "b"]) == hash_of(("a", "b")) != hash_of(["ab"])
    (item,) = text_flow().prepare(rows("a text"))
    assert isinstance(item, Prepared)
    assert item.text_hash == hash_of(["a text"])
    assert len(item.text_hash) == 32
