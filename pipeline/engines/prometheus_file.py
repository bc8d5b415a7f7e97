"""A night's figures in a file that the textfile collector of Prometheus' node_exporter reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pipeline.run_report import NightFigures, cost_per_1000_rows, rows_per_s, tokens_per_s
from schemas.errors import ConfigError
from schemas.manifest import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

_SUCCESS = "nightmill_last_success_timestamp_seconds"
_KEPT_DATES = 7  # so that a broken night does not make the last sound one unknown
_LABELS = ("task", "date")


_GAUGES: dict[str, tuple[str, Callable[[NightFigures], float | None]]] = {
    "nightmill_rows_expected": ("Rows of the partition.", lambda night: night.rows),
    "nightmill_tokens_inferred": (
        "Tokens that the model saw in this run.",
        lambda night: night.effort.tokens,
    ),
    "nightmill_rows_per_second": (
        "Rows a second of all workers together.",
        lambda night: rows_per_s(night.effort),
    ),
    "nightmill_tokens_per_second": (
        "Tokens a second of all workers together.",
        lambda night: tokens_per_s(night.effort),
    ),
    "nightmill_workers": ("Workers of this run.", lambda night: night.effort.workers),
    "nightmill_worker_peak_bytes": (
        "Largest resident memory of a worker.",
        lambda night: night.effort.worker_peak_mib << 20,
    ),
    "nightmill_cost_per_1000_rows": (
        "Price of 1,000 rows, in the currency of score.price_per_hour.",
        lambda night: cost_per_1000_rows(night.effort),
    ),
}


def write_metrics(path: Path, nights: Sequence[NightFigures]) -> None:
    """Writes the metrics of `nights` in one step; earlier dates' last success stays in the file.

    Raises:
        ConfigError: the file cannot be written.
    """
    registry = CollectorRegistry()
    try:
        registry.register(_Nights(nights, before=_last_successes(path)))
        write_atomically(path, generate_latest(registry))
    except OSError as error:
        raise ConfigError(f"score.metrics_file {path} cannot be written: {error}") from error


class _Nights(Collector):
    def __init__(
        self, nights: Sequence[NightFigures], *, before: dict[tuple[str, str], float]
    ) -> None:
        self._nights = nights
        self._successes = before | {
            (night.task, night.date): night.succeeded_at
            for night in nights
            if night.succeeded_at is not None
        }

    def collect(self) -> Iterator[Metric]:
        yield from (self._rows(), self._to_review(), self._quarantined())
        yield from (self._steps(), self._last_success())
        for name, (help_text, value_of) in _GAUGES.items():
            family = GaugeMetricFamily(name, help_text, labels=_LABELS)
            for night in self._nights:
                if (value := value_of(night)) is not None:
                    family.add_metric((night.task, night.date), value)
            yield family

    def _rows(self) -> Metric:
        family = CounterMetricFamily(
            "nightmill_rows", "Rows read so far, by what became of them.",
            labels=(*_LABELS, "outcome"),
        )  # fmt: skip
        for night in self._nights:
            counters = night.counters
            for outcome, rows in (
                ("scored", counters.rows_scored),
                ("quarantined", counters.rows_quarantined),
            ):
                family.add_metric((night.task, night.date, outcome), rows)
        return family

    def _to_review(self) -> Metric:
        family = CounterMetricFamily(
            "nightmill_rows_to_review", "Scored rows that go to people.", labels=_LABELS
        )
        for night in self._nights:
            family.add_metric((night.task, night.date), night.counters.rows_to_review)
        return family

    def _quarantined(self) -> Metric:
        family = CounterMetricFamily(
            "nightmill_quarantined_rows", "Rejected rows by reason.", labels=(*_LABELS, "reason")
        )
        for night in self._nights:
            for reason, rows in night.counters.quarantined_by_reason.items():
                family.add_metric((night.task, night.date, reason), rows)
        return family

    def _steps(self) -> Metric:
        family = GaugeMetricFamily(
            "nightmill_step_seconds", "Seconds by step of the driver or of all workers.",
            labels=(*_LABELS, "process", "step"),
        )  # fmt: skip
        for night in self._nights:
            for process, steps in (
                ("driver", night.effort.steps),
                ("workers", night.effort.worker_steps),
            ):
                for step, seconds in steps.items():
                    family.add_metric((night.task, night.date, process, step), seconds)
        return family

    def _last_success(self) -> Metric:
        family = GaugeMetricFamily(_SUCCESS, "When the date was last published.", labels=_LABELS)
        newest = sorted(self._successes, key=lambda key: key[1])[-_KEPT_DATES:]
        mine = {(night.task, night.date) for night in self._nights}
        for key in sorted({*newest, *(mine & self._successes.keys())}):
            family.add_metric(key, self._successes[key])
        return family


def _last_successes(path: Path) -> dict[tuple[str, str], float]:
    """By task and date, from the file as it is; nothing where it is missing or not of its kind."""
    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}
    return {
        (sample.labels["task"], sample.labels["date"]): sample.value
        for family in families
        if family.name == _SUCCESS
        for sample in family.samples
        if {"task", "date"} <= sample.labels.keys()
    }
