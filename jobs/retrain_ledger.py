"""Who may start a retraining, and when the last one was: a file of the home behind a lock."""

from __future__ import annotations

import datetime as dt
import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from schemas.manifest import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemas.home import Home
    from schemas.monitor import MonitorConfig

LEDGER_FILE = "retrainings.json"


class Claim(Document):
    """A retraining that was granted: for which task and date, to whom, and on what evidence."""

    task: str
    date: dt.date
    key: str
    evidence: str


class Ledger(Document):
    """All claims that were granted, oldest first."""

    claims: tuple[Claim, ...] = ()


def claim_retraining(home: Home, claim: Claim, rules: MonitorConfig) -> str | None:
    """None where the retraining is granted, else the reason why it is not.

    Dates are those of the claims and no clock's, so that a day that is looked at again is answered
    as before; the same key is granted again. Two askers at once are answered one after the other.

    Raises:
        ArtifactError: the ledger cannot be read.
    """
    path = home.root / "monitor" / LEDGER_FILE
    with _alone(path):
        ledger = Ledger.read(path) if path.exists() else Ledger()
        if any((past.task, past.key) == (claim.task, claim.key) for past in ledger.claims):
            return None
        refusal = _refusal(ledger, claim, rules)
        if refusal is None:
            Ledger(claims=(*ledger.claims, claim)).write(path)
        return refusal


def _refusal(ledger: Ledger, claim: Claim, rules: MonitorConfig) -> str | None:
    near = [
        past.date
        for past in ledger.claims
        if past.task == claim.task and abs((past.date - claim.date).days) < rules.cooldown_days
    ]
    if near:
        return (
            f"{claim.task} was last retrained for {max(near)}, within monitor.cooldown_days "
            f"{rules.cooldown_days} of {claim.date}"
        )
    today = sum(past.date == claim.date for past in ledger.claims)
    if today >= rules.max_retrains_per_day:
        return (
            f"{today} retrainings were started for {claim.date}, monitor.max_retrains_per_day is "
            f"{rules.max_retrains_per_day}"
        )
    return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    lock = path.with_name(f".{path.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
