"""The last look at a task's nights and its last training, as files for node_exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from schemas.errors import ConfigError
from schemas.manifest import write_atomically
from schemas.monitor import LEVELS

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bundle import BundleSpec
    from schemas.monitor import MonitorVerdict
    from schemas.training import Finetuned

_TASK = ("task",)


def write_verdict(path: Path, verdict: MonitorVerdict) -> None:
    """Writes what the monitor said of its latest night, as 0 ok, 1 watch, 2 retrain.

    Raises:
        ConfigError: the file cannot be written.
    """
    registry = CollectorRegistry()
    level = Gauge(
        "nightmill_monitor_level", "Verdict: 0 ok, 1 watch, 2 retrain.", _TASK, registry=registry
    )
    level.labels(verdict.task).set(LEVELS.index(verdict.level))
    findings = Gauge(
        "nightmill_monitor_finding_level", "Gravest finding by check, as the verdict.",
        (*_TASK, "check"), registry=registry,
    )  # fmt: skip
    by_check: dict[str, int] = {}
    for finding in verdict.findings:
        gravest = max(by_check.get(finding.check, 0), LEVELS.index(finding.level))
        by_check[finding.check] = gravest
    for check, gravest in by_check.items():
        findings.labels(verdict.task, check).set(gravest)
    _write(path, registry)


def write_training(path: Path, *, done: Finetuned, spec: BundleSpec, at: float) -> None:
    """Writes the figures of a training whose bundle was made at `at`, in seconds since 1970.

    Raises:
        ConfigError: the file cannot be written.
    """
    registry, task = CollectorRegistry(), spec.task.name
    figures = {
        "nightmill_training_timestamp_seconds": ("When the last bundle was made.", at),
        "nightmill_training_seconds": ("Seconds of its fine-tuning.", done.seconds),
        "nightmill_training_valid_macro_f1": (
            "Macro-F1 on validation records.",
            done.valid_macro_f1,
        ),
    }
    for name, (help_text, value) in figures.items():
        Gauge(name, help_text, _TASK, registry=registry).labels(task).set(value)
    gates = Gauge(
        "nightmill_training_gates", "Gates of all variants by outcome.", (*_TASK, "outcome"),
        registry=registry,
    )  # fmt: skip
    passed = sum(gate.passed for gate in spec.gates)
    gates.labels(task, "passed").set(passed)
    gates.labels(task, "failed").set(len(spec.gates) - passed)
    _write(path, registry)


def _write(path: Path, registry: CollectorRegistry) -> None:
    try:
        write_atomically(path, generate_latest(registry))
    except OSError as error:
        raise ConfigError(f"metrics file {path} cannot be written: {error}") from error
