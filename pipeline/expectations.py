"""What a partition must be like, as a list of expectations over its profile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.column_rules import Between, ColumnRules, OneOf, presence_of
from pipeline.partition_profile import (
    FIRST,
    KEPT,
    LANGUAGE,
    OUTCOME,
    REJECTED,
    REPEATED_ID,
    TEXT_CHARS,
)
from pipeline.validate import LANGUAGE_RULE, UNDETERMINED
from schemas.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.drift import DriftBounds
    from pipeline.partition_profile import PartitionProfile
    from schemas.task import ContractConfig, TaskConfig

Kind = Literal["rows", "values", "mean"]
MIN_ROWS, MAX_REJECT_FRACTION = "min_rows", "max_reject_fraction"
DRIFT_OF_VOLUME, DRIFT_OF_NULLS = "drift of volume", "drift of missing values"


@dataclass(frozen=True, slots=True)
class Expected:
    """One expectation: of the number of rows, of each value of `measured`, or of their mean.

    `column` is what people know it by, `key` the reason or rule that its rows are counted under.
    `words` end "expected …"; of `values`, at least the share `mostly` must be so. Only a critical
    one breaks the contract.
    """

    kind: Kind
    key: str
    column: str | None
    measured: str | None
    demand: OneOf | Between
    words: str
    critical: bool = True
    mostly: float = 1.0
    subject: str = "values"

    @property
    def sentence(self) -> str:
        """What is expected, after "expected"."""
        if self.kind != "values":
            return self.words
        share = "all" if self.mostly >= 1 else f"at least {100 * self.mostly:.4g} % of"
        return f"{share} {self.subject} to {self.words}"


def expectations(
    task: TaskConfig, profile: PartitionProfile, drift: DriftBounds
) -> tuple[Expected, ...]:
    """The expectations of a task; a partition without rows is only counted."""
    contract, data = task.contract, task.data
    asked = [_about_rows(contract)]
    if profile.rows:
        asked += _about_rejects(contract)
        asked += _about_texts(contract)
        asked += _about_ids(data.id_column, contract) if data.id_column else ()
        asked += _about_columns(contract)
        asked += _about_languages(contract)
    asked += _about_volume(contract, drift)
    for column in profile.null_share:
        # A column that nothing asked about before has no bounds yet.
        if column in drift.null_share:
            asked.append(_about_nulls(column, contract, drift))
    return tuple(asked)


def _about_rows(contract: ContractConfig) -> Expected:
    least = contract.min_rows
    words = f"at least {least:,} {'row' if least == 1 else 'rows'}"
    return Expected("rows", MIN_ROWS, None, None, Between(low=least), words)


def _about_rejects(contract: ContractConfig) -> Iterator[Expected]:
    limit = contract.max_reject_fraction
    words = f"at most {100 * limit:.4g} % of rows to be rejected"
    yield Expected("mean", MAX_REJECT_FRACTION, None, REJECTED, Between(high=limit), words)
    for reason in contract.stop_on:
        others = OneOf((KEPT, *(other for other in Reason if other is not reason)))
        words = f"be free of {reason}"
        yield Expected("values", reason, None, OUTCOME, others, words, subject="rows")


def _about_texts(contract: ContractConfig) -> Iterator[Expected]:
    low, high = contract.min_text_chars, contract.max_text_chars
    about = [(Reason.MISSING_TEXT, Between(low=1), "hold a text that is not blank")]
    if low > 1:
        words = f"have at least {low:,} characters"
        about.append((Reason.TEXT_TOO_SHORT, Between(low=low), words))
    about.append((Reason.TEXT_TOO_LONG, Between(high=high), f"have at most {high:,} characters"))
    for reason, demand, words in about:
        yield Expected(
            "values", reason, "text", TEXT_CHARS, demand, words, mostly=_tolerated(contract)
        )


def _about_ids(column: str, contract: ContractConfig) -> Iterator[Expected]:
    """A repeated id only warns: its later rows are rejected one by one, and counted as such."""
    mostly = _tolerated(contract)
    yield Expected(
        "values", Reason.MISSING_ID, column, presence_of(column), Between(low=1), "be present",
        mostly=mostly,
    )  # fmt: skip
    yield Expected(
        "values", Reason.DUPLICATE_ID, column, REPEATED_ID, OneOf((FIRST,)), "be unique",
        mostly=mostly, critical=False,
    )  # fmt: skip


def _about_columns(contract: ContractConfig) -> Iterator[Expected]:
    """Each row rule once more: what rejects may break in some rows, what stops in none."""
    for column, config in contract.columns.items():
        for rule in ColumnRules(column, config).rules:
            yield Expected(
                "values", rule.key, column, rule.measured, rule.demand, rule.expected,
                critical=rule.severity != "warn",
                mostly=_tolerated(contract) if rule.severity == "reject" else 1.0,
            )  # fmt: skip


def _about_languages(contract: ContractConfig) -> Iterator[Expected]:
    rule = contract.languages
    if rule is None:
        return
    yield Expected(
        "values", LANGUAGE_RULE, "lang", LANGUAGE, OneOf((*rule.allowed, UNDETERMINED)),
        f"be one of {', '.join(rule.allowed)}, or not to be told",
        critical=rule.severity in {"reject", "stop"},
        mostly=1.0 if rule.severity in {"stop", "warn"} else _tolerated(contract),
    )  # fmt: skip


def _about_volume(contract: ContractConfig, drift: DriftBounds) -> Iterator[Expected]:
    if drift.rows is None:
        return
    low, high = math.floor(drift.rows[0]), math.ceil(drift.rows[1])
    yield Expected(
        "rows", DRIFT_OF_VOLUME, None, None, Between(low, high),
        f"{low:,} to {high:,} rows after the {len(drift.dates)} dates before",
        critical=contract.drift.severity == "stop",
    )  # fmt: skip


def _about_nulls(column: str, contract: ContractConfig, drift: DriftBounds) -> Expected:
    # Bounds are of the share of missing values; measured is which values are there.
    low, high = drift.null_share[column]
    return Expected(
        "mean", DRIFT_OF_NULLS, column, presence_of(column), Between(1 - high, 1 - low),
        f"{100 * (1 - high):.4g} to {100 * (1 - low):.4g} % of values to be present after the "
        f"{len(drift.dates)} dates before",
        critical=contract.drift.severity == "stop",
    )  # fmt: skip


def _tolerated(contract: ContractConfig) -> float:
    return 1.0 - contract.max_reject_fraction
