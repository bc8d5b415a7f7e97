"""`nightmill monitor`: a published night against the ones before it, and a verdict with reasons."""

from __future__ import annotations

import datetime as dt
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobs.late_input import changed_since_scored
from jobs.night_checks import compare
from jobs.night_summary import (
    earlier_nights,
    published_dates,
    read_verdict,
    summary_of,
    verdict_file,
)
from jobs.options import Context, dates_options, job, overrides_argument
from jobs.quality_check import quality_findings
from jobs.retrain_ledger import Claim, claim_retraining
from jobs.step_metrics import tell_metrics
from pipeline.engines.prometheus_steps import write_verdict
from schemas.errors import NightmillError
from schemas.load import load_task
from schemas.monitor import LEVELS, Finding, MonitorVerdict
from schemas.partition import date_range, parse_date

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.home import Home
    from schemas.monitor import Level, NightSummary
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)

MAX_REASON_CHARS = 480  # what the retrain form takes, and a person reads


@job(
    "monitor",
    epilog="\b\nExamples:\n"
    "  nightmill monitor tickets --date 2026-11-28\n"
    "  nightmill monitor tickets --date 2026-11-28 --claim evening monitor.retrain=true\n",
)
@click.argument("task")
@dates_options
@click.option("--claim", help="Ask, under this name, whether a retraining may be started.")
@overrides_argument
def command(
    context: Context, *, task: str, date: str, through: str | None, claim: str | None,
    overrides: tuple[str, ...],
) -> dict[str, Any]:  # fmt: skip
    """Say of a published date of TASK whether it is as the nights before it: ok, watch or retrain.

    Looked at are volume, languages, unknown tokens, answers, confidence, quarantine, cost, and
    quality where outcomes have arrived. Whatever is found, or cannot be looked at, the job ends
    well; the verdict and its evidence are kept in the home's folder `monitor`.
    """
    config = load_task(task, context.home, overrides=overrides)
    first = parse_date(date, name="--date")
    days = date_range(first, parse_date(through, name="--through") if through else first)
    verdicts = [look_at(config, context.home, day) for day in days]
    last = verdicts[-1]
    answer: dict[str, Any] = {
        "verdicts": {verdict.date: verdict.level for verdict in verdicts},
        "evidence": [_cut(told) for told in last.evidence[:10]],
        "verdict_file": str(verdict_file(context.home, config.name, days[-1])),
        "changed": list(last.changed),
    }
    if claim is not None:
        answer["retrain"] = _ask(config, context.home, last, key=claim)
    return answer


def look_at(task: TaskConfig, home: Home, day: dt.date) -> MonitorVerdict:
    """The verdict on a date, which is also kept; trouble with looking is a finding of its own."""
    findings: list[Finding] = []
    night: NightSummary | None = None
    before: list[NightSummary] = []
    try:
        night = summary_of(task, home, day)
        before = earlier_nights(task, home, day)
        findings += compare(night, before, task.monitor)
        findings += quality_findings(task, home, _window(task, home, day), model=night.model)
    except NightmillError as error:
        findings.append(_unseen(str(error)))
    changed = _changed(task, home, day, findings)
    if night is not None:
        findings += _lasting_drift(task, home, findings, before)
    verdict = MonitorVerdict(
        task=task.name,
        date=day.isoformat(),
        level=_gravest(findings),
        findings=tuple(findings),
        against=tuple(each.date for each in before),
        night=night,
        changed=tuple(each.isoformat() for each in changed),
    )
    verdict.write(verdict_file(home, task.name, day))
    _tell(verdict)
    tell_metrics(task, home, "monitor", partial(write_verdict, verdict=verdict))
    return verdict


def _window(task: TaskConfig, home: Home, day: dt.date) -> list[dt.date]:
    """The nights whose outcomes are looked at, the newest first."""
    return published_dates(home, task.name, through=day)[: task.monitor.outcome_nights]


def _changed(
    task: TaskConfig, home: Home, day: dt.date, findings: list[Finding]
) -> tuple[dt.date, ...]:
    """Dates whose input has changed since they were scored; each is a finding too."""
    days = task.schedule.late.rescore_days if task.schedule else 0
    try:
        changed = changed_since_scored(
            task, home, (day - dt.timedelta(days=back) for back in range(days + 1))
        )
    except NightmillError as error:
        findings.append(_unseen(str(error)))
        return ()
    for each in changed:
        told = f"input of {each} is not what was scored; score that date again"
        findings.append(Finding(check="late input", level="watch", told=told))
    return changed


def _lasting_drift(
    task: TaskConfig, home: Home, findings: Sequence[Finding], before: Sequence[NightSummary]
) -> Iterator[Finding]:
    """Asks for a new model once as many nights in a row as are allowed were unlike the others."""
    wanted = task.monitor.retrain_after
    if not wanted or not any(each.is_drift and each.level != "ok" for each in findings):
        return
    nights = 1
    for each in before:
        verdict = read_verdict(home, task.name, dt.date.fromisoformat(each.date))
        if verdict is None or not verdict.drifts:
            break
        nights += 1
    if nights >= wanted:
        yield Finding(
            check="lasting drift",
            level="retrain",
            told=f"{nights} nights in a row are unlike the ones before them",
            value=nights,
            limit=wanted,
        )


def _ask(task: TaskConfig, home: Home, verdict: MonitorVerdict, *, key: str) -> dict[str, Any]:
    """Whether a retraining may be started for this verdict, and its reason either way."""
    evidence = _cut(f"monitor {verdict.date}: {'; '.join(verdict.evidence)}")
    if verdict.level != "retrain":
        return {"granted": False, "reason": f"the verdict is {verdict.level}"}
    if not task.monitor.retrain:
        return {"granted": False, "reason": "monitor.retrain is not set"}
    claim = Claim(
        task=task.name, date=dt.date.fromisoformat(verdict.date), key=key, evidence=evidence
    )
    refusal = claim_retraining(home, claim, task.monitor)
    if refusal is not None:
        log.warning("%s: no retraining is started: %s", task.name, refusal)
        return {"granted": False, "reason": refusal}
    log.info("%s: a retraining may be started: %s", task.name, evidence)
    return {"granted": True, "reason": evidence}


def _unseen(problem: str) -> Finding:
    return Finding(check="looking", level="watch", told=_cut(f"not looked at: {problem}"))


def _gravest(findings: Sequence[Finding]) -> Level:
    return max((each.level for each in findings), key=LEVELS.index, default="ok")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"


def _tell(verdict: MonitorVerdict) -> None:
    for finding in verdict.findings:
        say = log.info if finding.level == "ok" else log.warning
        say("%s %s %s: %s", verdict.task, verdict.date, finding.check, finding.told)
    log.info("%s %s: verdict %s", verdict.task, verdict.date, verdict.level)
