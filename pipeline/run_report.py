"""What a run cost, in the figures that people compare: rates, shares, memory, money."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.manifest import Counters, Effort

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class NightFigures:
    """One date of a task: how many rows it has, what became of them so far, what it cost.

    `succeeded_at` is the time of publication in seconds since 1970, None as long as there is none.
    """

    task: str
    date: str
    rows: int
    counters: Counters
    effort: Effort
    succeeded_at: float | None = None


def rows_per_s(effort: Effort) -> float:
    """Rows a second of all workers together while they were at work; 0 where nothing was scored."""
    return _rate(effort.rows_scored, effort)


def tokens_per_s(effort: Effort) -> float:
    """Tokens a second of all workers together."""
    return _rate(effort.tokens, effort)


def cost_per_1000_rows(effort: Effort) -> float | None:
    """Price of 1,000 rows, start-up and publication included; None without price or rows."""
    if effort.price_per_hour is None or not effort.rows_scored:
        return None
    hours = total_s(effort) / _SECONDS_PER_HOUR
    return hours * effort.machines * effort.price_per_hour / effort.rows_scored * 1000


def total_s(effort: Effort) -> float:
    """The driver's seconds of all steps; runs of old have only their sum."""
    return sum(effort.steps.values()) or effort.seconds


def describe_effort(effort: Effort) -> str:
    """One line for a log: what was done, how fast, in what memory, for how much."""
    if not effort.shards_scored:
        return f"nothing to score, {total_s(effort):.1f} s"
    parts = [
        f"{effort.rows_scored} rows in {total_s(effort):.1f} s ({_steps(effort.steps)})",
        f"{rows_per_s(effort):.0f} rows/s and {tokens_per_s(effort):.0f} tokens/s of "
        f"{effort.workers} workers ({_steps(effort.worker_steps)})",
        f"at most {effort.worker_peak_mib} MiB a worker",
    ]
    if effort.shards_kept:
        parts.append(f"{effort.shards_kept} shards were done before")
    if effort.texts_remembered:
        parts.append(f"{effort.texts_remembered} texts were remembered")
    if (cost := cost_per_1000_rows(effort)) is not None:
        parts.append(f"{cost:.4f} per 1,000 rows")
    return ", ".join(parts)


def _steps(steps: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in steps.items())


def _rate(amount: int, effort: Effort) -> float:
    return amount / effort.worker_seconds * effort.workers if effort.worker_seconds else 0.0
