"""What keeps a night from being published: reasons and rules that stop it, too many rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.quarantined import WITHOUT_RAW, QuarantinedRow, Tally, quarantined_rows
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from schemas.manifest import Counters
    from schemas.task import ContractConfig

_MAX_EXAMPLES = 3


def check_stops(
    contract: ContractConfig, counters: Counters, quarantine: Iterable[Path], *, what: str
) -> None:
    """Stops a night before anything of it is published; `quarantine` are its staged files.

    Raises:
        DataContractError: a reason of `stop_on` or a rule of severity `stop` was met, or more rows
            are rejected than the contract allows. All of it is in the one message, with examples.
    """
    by_reason = counters.quarantined_by_reason
    stopping = [reason for reason in contract.stop_on if by_reason.get(reason)]
    fraction = counters.rows_quarantined / max(counters.rows_read, 1)
    too_many = fraction > contract.max_reject_fraction
    if not (stopping or counters.stopped or too_many):
        return
    found = _examples(quarantine, tuple(counters.stopped))
    problems = [
        f"rows rejected as {reason}: {by_reason[reason]}{found.such_as((reason,))}, which stops "
        f"the night by contract.stop_on"
        for reason in stopping
    ]
    problems += [_broken_rule(key, n, found) for key, n in counters.stopped.items()]
    if too_many:
        problems.append(_too_many(contract, counters, found, fraction=fraction))
    raise DataContractError(
        f"{what}: {'; '.join(problems)}; nothing was published: mend the input, or relax the "
        f"contract"
    )


def _too_many(
    contract: ContractConfig, counters: Counters, found: Tally, *, fraction: float
) -> str:
    reasons = ", ".join(
        f"{n} {reason}{found.such_as((reason,))}"
        for reason, n in counters.quarantined_by_reason.items()
    )
    return (
        f"{counters.rows_quarantined} of {counters.rows_read} rows rejected ({fraction:.1%}, "
        f"allowed {contract.max_reject_fraction:.1%}): {reasons}"
    )


def _broken_rule(key: str, count: int, found: Tally) -> str:
    column, _, rule = key.rpartition(":")
    # A row tells only the first rule that it breaks, so another's name may stand in its detail.
    return (
        f"rows in which column {column!r} breaks {rule!r}: {count}{found.such_as((key,))}, which "
        f"stops the night by the rule's severity"
    )


def _examples(quarantine: Iterable[Path], rules: tuple[str, ...]) -> Tally:
    """The first rows of each reason, and of each rule given as `column:rule`."""
    tally = Tally(_MAX_EXAMPLES)
    for row in quarantined_rows(quarantine, columns=WITHOUT_RAW):
        tally.add((row["reason"],), row)
        for rule in _rules_named(row, rules):
            tally.add((rule,), row)
    return tally


def _rules_named(row: QuarantinedRow, rules: tuple[str, ...]) -> Iterator[str]:
    for key in rules:
        column, _, rule = key.rpartition(":")
        if row["detail"].startswith(f"column {column!r}: {rule}"):
            yield key
