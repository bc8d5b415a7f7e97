"""The only place that states the order of the steps a record goes through.

read -> validate -> clean -> deduplicate -> window -> infer -> aggregate -> decide
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pipeline.graphemes import cut_at_grapheme
from pipeline.rows import RawRow, Record, Rejected
from pipeline.window import Tokens, Windows, WindowTemplate, make_windows
from schemas.errors import ConfigError, ShardError
from schemas.manifest import Counters
from schemas.reasons import Reason, Stage

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pipeline.clean import Cleaner
    from pipeline.heads import Answer, Decision
    from pipeline.inference import Inference, Inferred
    from pipeline.validate import Validator
    from schemas.manifest import ModelRef
    from schemas.task import WindowConfig


class Tokenizer(Protocol):
    """Text into ids and offsets, and where control tokens stand."""

    single: WindowTemplate
    pair: WindowTemplate

    def tokenize(self, texts: list[str]) -> list[Tokens]:
        """Ids and offsets of each text, without control tokens."""


@dataclass(frozen=True)
class Prepared:
    """A record whose text is clean; equal `text_hash` means equal text.

    `to_review`: the contract sends it to people, whatever the model says.
    """

    record: Record
    texts: tuple[str, ...]
    text_hash: str
    lang: str
    flags: tuple[str, ...]
    truncated: bool
    to_review: bool = False


@dataclass(frozen=True)
class Scored:
    """A record with the answer of every head; `spans` are its windows in the cleaned body.

    `model` is the one that answered, where it is not the run's.
    """

    prepared: Prepared
    answers: Mapping[str, Answer]
    decision: Decision
    spans: tuple[tuple[int, int], ...]
    truncated: bool
    model: ModelRef | None = None


@dataclass
class Outcome:
    """What became of a run of rows; nothing is in neither list.

    `texts_remembered` were answered without a model; the counters do not depend on it.
    """

    scored: list[Scored] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    texts_remembered: int = 0


class TextFlow:
    """validate -> clean -> window: what training and scoring do to a text, exactly alike.

    A flow without a tokenizer cannot make windows; all before them is the same.
    """

    def __init__(
        self,
        validator: Validator,
        cleaner: Cleaner,
        tokenizer: Tokenizer | None,
        window: WindowConfig,
        *,
        detect_language: Callable[[str], str],
        first_window_only: bool = False,
    ) -> None:
        self.validator = validator
        self.cleaner = cleaner
        self.cleaned: Counter[str] = Counter()
        self._tokenizer = tokenizer
        self._window = window
        self._detect_language = detect_language
        self._first_window_only = first_window_only

    def prepare(
        self, rows: Iterable[RawRow | Rejected], *, date: dt.date | None = None
    ) -> Iterator[Prepared | Rejected]:
        """Validates and cleans rows, in order; one item out for each item in.

        `date` is the partition's; without one, rules about time around it are not asked.
        """
        for row in rows:
            checked = self.validator.check(row, date) if isinstance(row, RawRow) else row
            yield self._clean(checked) if isinstance(checked, Record) else checked

    def counts(self) -> dict[str, Counter[str]]:
        """Texts changed by step, and broken rules that warn or stop, since the flow was made."""
        validator = self.validator
        return {
            "cleaned": Counter(self.cleaned),
            "warned": Counter(validator.warned),
            "stopped": Counter(validator.stopped),
        }

    def windows(self, prepared: Prepared) -> Windows:
        """The windows of a record, or the first of them where a model reads no other.

        Raises:
            ConfigError: the flow has no tokenizer.
        """
        if self._tokenizer is None:
            raise ConfigError("this text flow was made without a tokenizer")
        made = windows_of(prepared.texts, self._tokenizer, self._window)
        if not self._first_window_only or len(made.windows) == 1:
            return made
        return Windows(made.windows[:1], truncated=True)

    def _clean(self, record: Record) -> Prepared | Rejected:
        limit = self._window.max_chars
        # A giant text is cut before the costly steps, so that no row costs unbounded time.
        cut = [cut_at_grapheme(text, limit) for text in record.texts]
        cleaned = [self.cleaner.clean(text) for text in cut]
        texts = tuple(result.text for result in cleaned)
        if not any(texts):
            return Rejected(
                record.record_id,
                record.source_file,
                record.source_row,
                Stage.CLEAN,
                Reason.EMPTY_AFTER_CLEANING,
                "nothing is left of the text after cleaning",
                record.raw,
            )
        lang = self._detect_language(texts[-1] or texts[0])
        if (breach := self.validator.check_language(record, lang)) is not None:
            return breach
        changed = {step for result in cleaned for step in result.changed}
        self.cleaned.update(changed)
        to_review = self.validator.wants_review(lang)
        flags = tuple(sorted({*changed, *(("language",) if to_review else ())}))
        return Prepared(
            record=record,
            texts=texts,
            text_hash=hash_of(texts),
            lang=lang,
            flags=flags,
            truncated=cut != list(record.texts),
            to_review=to_review,
        )


def hash_of(texts: Sequence[str]) -> str:
    """The `text_hash` of clean texts."""
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:32]


def windows_of(texts: Sequence[str], tokenizer: Tokenizer, config: WindowConfig) -> Windows:
    """All windows of a record's one or two texts; see `make_windows`."""
    return make_windows(
        tokenizer.tokenize(list(texts)),
        texts,
        template=tokenizer.pair if len(texts) == 2 else tokenizer.single,
        config=config,
    )


class ScoringFlow:
    """Everything one worker does to a shard, built once and used for many."""

    def __init__(self, text: TextFlow, inference: Inference) -> None:
        self._text = text
        self._inference = inference

    def score(self, rows: Iterable[RawRow | Rejected], *, date: dt.date | None = None) -> Outcome:
        """Scores rows; what comes out is in their order. Each distinct text is inferred once.

        Raises:
            ShardError: the conservation law does not hold, which is a bug of ours.
        """
        before = self._text.counts()
        items = list(self._text.prepare(rows, date=date))
        distinct = {item.text_hash: item for item in items if isinstance(item, Prepared)}
        inferred = dict(zip(distinct, self._inference.infer(list(distinct.values())), strict=True))
        outcome = Outcome()
        for item in items:
            if isinstance(item, Prepared):
                _keep(outcome, item, inferred[item.text_hash])
            else:
                outcome.rejected.append(item)
        outcome.counters = Counters(
            rows_read=len(items),
            rows_scored=len(outcome.scored),
            rows_quarantined=len(outcome.rejected),
            rows_to_review=sum(scored.decision == "review" for scored in outcome.scored),
            windows_made=sum(each.windows_made for each in inferred.values()),
            windows_aggregated=sum(each.windows_aggregated for each in inferred.values()),
            texts_inferred=sum(each.windows_made > 0 for each in inferred.values()),
            tokens_inferred=sum(each.tokens for each in inferred.values()),
            quarantined_by_reason=_sorted(Counter(row.reason.value for row in outcome.rejected)),
            **{
                name: _sorted(counts - before[name]) for name, counts in self._text.counts().items()
            },
        )
        outcome.texts_remembered = sum(each.remembered for each in inferred.values())
        check_conservation(outcome.counters, what="shard")
        return outcome


def _keep(outcome: Outcome, item: Prepared, inferred: Inferred) -> None:
    if inferred.answers:
        truncated = item.truncated or inferred.truncated
        decision: Decision = "review" if item.to_review else inferred.decision
        outcome.scored.append(
            Scored(item, inferred.answers, decision, inferred.spans, truncated, inferred.model)
        )
        return
    record = item.record
    outcome.rejected.append(
        Rejected(
            record.record_id,
            record.source_file,
            record.source_row,
            Stage.INFER,
            Reason.NON_FINITE_SCORE,
            "the model gave NaN or infinity",
            record.raw,
        )
    )


def check_conservation(counters: Counters, *, what: str) -> None:
    """Rows read = scored + quarantined, and windows made = windows aggregated.

    Raises:
        ShardError: they are not; `what` names the shard or partition.
    """
    if counters.rows_read != counters.rows_scored + counters.rows_quarantined:
        raise ShardError(
            f"{what}: {counters.rows_read} rows read, but {counters.rows_scored} scored + "
            f"{counters.rows_quarantined} quarantined"
        )
    if counters.windows_made != counters.windows_aggregated:
        raise ShardError(
            f"{what}: {counters.windows_made} windows made, but "
            f"{counters.windows_aggregated} aggregated"
        )


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))
