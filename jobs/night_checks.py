"""What is asked of a published night: how far it is from the ones before it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from scipy.spatial.distance import jensenshannon

from schemas.monitor import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.monitor import MonitorConfig, NightSummary


def compare(
    night: NightSummary, before: Sequence[NightSummary], rules: MonitorConfig
) -> tuple[Finding, ...]:
    """One finding for each thing that can be compared; none where too few nights are there.

    `before` is the newest first. Answers are compared with those of the same model only: another
    one is meant to answer otherwise.
    """
    if len(before) < rules.min_nights:
        told = f"{len(before)} nights before {night.date}, {rules.min_nights} are needed to compare"
        return (Finding(check="history", level="ok", told=told),)
    findings = [_volume(night, before, rules), *_quarantine(night, before, rules)]
    findings += _cost(night, before, rules)
    if night.rows_scored >= rules.min_rows:
        findings += _inputs(night, before, rules)
        same = [each for each in before if each.model.digest == night.model.digest]
        if len(same) >= rules.min_nights:
            findings += _answers(night, same, rules)
    return tuple(findings)


def _volume(night: NightSummary, before: Sequence[NightSummary], rules: MonitorConfig) -> Finding:
    median = statistics.median(each.rows_read for each in before)
    larger, smaller = max(night.rows_read, median), min(night.rows_read, median)
    factor = larger / smaller if smaller else (float(larger) if larger else 1.0)
    return _finding(
        "volume", factor, rules.max_volume_factor,
        f"{night.rows_read} rows, {median:g} in the median of {len(before)} nights",
    )  # fmt: skip


def _quarantine(
    night: NightSummary, before: Sequence[NightSummary], rules: MonitorConfig
) -> Iterator[Finding]:
    rise, now, then = _rise(night, before, lambda it: _share(it.rows_quarantined, it.rows_read))
    yield _finding(
        "quarantine", rise, rules.max_quarantine_rise,
        f"{now:.1%} of the rows quarantined, {then:.1%} in the median",
    )  # fmt: skip


def _cost(
    night: NightSummary, before: Sequence[NightSummary], rules: MonitorConfig
) -> Iterator[Finding]:
    """Price where one is set, else seconds; of 1,000 rows, start-up included."""
    for name in ("cost", "seconds"):
        now, *then = (getattr(each, f"{name}_per_1000_rows") for each in (night, *before))
        then = [value for value in then if value is not None]
        if now is None or len(then) < rules.min_nights or not (median := statistics.median(then)):
            continue
        yield _finding(
            "cost", now / median, rules.max_cost_factor,
            f"{name} of 1,000 rows {now:.4g}, {median:.4g} in the median",
        )  # fmt: skip
        return


def _inputs(
    night: NightSummary, before: Sequence[NightSummary], rules: MonitorConfig
) -> Iterator[Finding]:
    distance = _distance(night.languages, [each.languages for each in before])
    yield _finding(
        "languages", distance, rules.max_language_distance,
        f"languages are {distance:.2f} away from those of {len(before)} nights, "
        f"mostly {_top(night.languages)}", is_drift=True,
    )  # fmt: skip
    known = [each for each in before if each.unknown_share is not None]
    if night.unknown_share is not None and len(known) >= rules.min_nights:
        rise, now, then = _rise(night, known, lambda it: it.unknown_share or 0.0)
        yield _finding(
            "unknown tokens", rise, rules.max_unknown_rise,
            f"{now:.1%} of the tokens unknown to the model, {then:.1%} in the median",
            is_drift=True,
        )  # fmt: skip


def _answers(
    night: NightSummary, before: Sequence[NightSummary], rules: MonitorConfig
) -> Iterator[Finding]:
    for head, answers in night.answers.items():
        earlier = [each.answers[head] for each in before if head in each.answers]
        if len(earlier) < rules.min_nights:
            continue
        distance = _distance(answers.labels, [each.labels for each in earlier])
        yield _finding(
            f"answers of {head}", distance, rules.max_answer_distance,
            f"answers of head {head} are {distance:.2f} away from those of {len(earlier)} nights, "
            f"mostly {_top(answers.labels)}", is_drift=True,
        )  # fmt: skip
        usual = statistics.median(each.confidence for each in earlier)
        yield _finding(
            f"confidence of {head}", usual - answers.confidence, rules.max_confidence_drop,
            f"mean confidence of head {head} {answers.confidence:.2f}, {usual:.2f} in the median",
            is_drift=True,
        )  # fmt: skip
    rise, now, then = _rise(night, before, lambda it: _share(it.rows_to_review, it.rows_scored))
    yield _finding(
        "review", rise, rules.max_review_rise,
        f"{now:.1%} of the rows go to people, {then:.1%} in the median", is_drift=True,
    )  # fmt: skip


def _finding(
    check: str, value: float, limit: float, told: str, *, is_drift: bool = False
) -> Finding:
    beyond = value > limit
    return Finding(
        check=check,
        level="watch" if beyond else "ok",
        told=f"{told} (limit {limit:g})" if beyond else told,
        value=round(value, 6),
        limit=limit,
        is_drift=is_drift,
    )


def _rise(
    night: NightSummary, before: Sequence[NightSummary], of: Callable[[NightSummary], float]
) -> tuple[float, float, float]:
    """How much a share has risen over the median, the share itself, and the median."""
    now, then = of(night), statistics.median(of(each) for each in before)
    return now - then, now, then


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _distance(counts: Mapping[str, int], before: Sequence[Mapping[str, int]]) -> float:
    """Jensen-Shannon distance, base 2, of shares now and shares of all nights before together."""
    names = sorted({*counts, *(name for each in before for name in each)})
    now = [counts.get(name, 0) for name in names]
    then = [sum(each.get(name, 0) for each in before) for name in names]
    return float(jensenshannon(now, then, base=2)) if sum(now) and sum(then) else 0.0


def _top(counts: Mapping[str, int]) -> str:
    name = max(counts, key=lambda key: counts[key], default="nothing")
    return f"{name} ({_share(counts.get(name, 0), sum(counts.values())):.0%})"
