"""What is wrong with a partition, each in one line: column, rule, how many, three examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.expectations import DRIFT_OF_NULLS, DRIFT_OF_VOLUME, MAX_REJECT_FRACTION, MIN_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pipeline.engines.quality_pages import CheckedExpectation
    from pipeline.partition_profile import PartitionProfile
    from pipeline.validate import Validator

_MENDS = {
    MIN_ROWS: "set contract.min_rows=0 for quiet days",
    MAX_REJECT_FRACTION: "mend the data, or raise contract.max_reject_fraction",
    DRIFT_OF_VOLUME: "look whether files are missing or doubled, or relax contract.drift",
    DRIFT_OF_NULLS: "look where the column's values went, or relax contract.drift",
}


def problems(
    checked: Iterable[CheckedExpectation], profile: PartitionProfile, validator: Validator
) -> tuple[str, ...]:
    """One line for each critical expectation that is not met."""
    examples = {reason.value: names for reason, names in profile.examples.items()}
    examples |= validator.examples
    return tuple(_told(each, profile, examples) for each in checked if each.status == "failed")


def warnings(checked: Iterable[CheckedExpectation], validator: Validator) -> tuple[str, ...]:
    """One line for each other expectation that is not met."""
    return tuple(
        _line(each, _such(validator.examples.get(each.asked.key, ())))
        for each in checked
        if each.status == "warning"
    )


def _told(
    failure: CheckedExpectation, profile: PartitionProfile, examples: Mapping[str, Sequence[str]]
) -> str:
    key = failure.asked.key
    such = _such(examples.get(key, ()))
    if key == MAX_REJECT_FRACTION:
        reasons = ", ".join(
            f"{count} {reason}{_such(profile.examples[reason])}"
            for reason, count in profile.by_reason.most_common()
        )
        such = f": {profile.rejected} of {profile.rows} rows rejected, {reasons}"
    mend = f"; {_MENDS[key]}" if key in _MENDS else ""
    return _line(failure, such) + mend


def _line(failure: CheckedExpectation, such: str) -> str:
    asked, count = failure.asked, failure.failure_count
    column = f"column {asked.column!r}, " if asked.column else ""
    rule = asked.key.rpartition(":")[2]
    rows = f", {count} {'row is' if count == 1 else 'rows are'} not so" if count else ""
    return f"{column}{rule}: expected {asked.sentence}, got {failure.observed}{rows}{such}"


def _such(examples: Sequence[str]) -> str:
    return f" (such as {', '.join(examples)})" if examples else ""
