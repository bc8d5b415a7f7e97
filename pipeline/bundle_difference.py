"""What two bundles do not have in common: settings, labels, quality, gates, speed, origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.bundle import BundleSpec, GateResult, HeadMetrics

Interval = tuple[float, float]
_FIGURES = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class LabelDifference:
    """How one head's labels changed; `reordered` where only their order did."""

    head: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    reordered: bool


@dataclass(frozen=True)
class FigureDifference:
    """One figure of one head on both sides, each with its 95 % interval.

    The two were measured on held-out records of their own, so that intervals which overlap say
    that nothing is known of who is better, and those which do not are a hint.
    """

    head: str
    figure: str
    values: tuple[float, float]
    intervals: tuple[Interval, Interval]

    @property
    def overlap(self) -> bool:
        """Whether the intervals have a value in common."""
        (low_a, high_a), (low_b, high_b) = self.intervals
        return low_a <= high_b and low_b <= high_a


@dataclass(frozen=True)
class BundleDifference:
    """Two bundles side by side; each pair is of the first and the second, None where it has none.

    `settings` go by dotted key of the task file and hold only what differs; `origins` and `facts`
    hold both sides whether they differ or not.
    """

    settings: dict[str, tuple[Any, Any]]
    labels: tuple[LabelDifference, ...]
    figures: tuple[FigureDifference, ...]
    gates: dict[str, tuple[GateResult | None, GateResult | None]]
    facts: dict[str, tuple[float | None, float | None]]
    origins: dict[str, tuple[str, str]]


def compare_bundles(first: BundleSpec, second: BundleSpec) -> BundleDifference:
    """All that differs between two bundles of one task."""
    mine, theirs = (_settings(spec) for spec in (first, second))
    return BundleDifference(
        settings={
            key: (mine.get(key), theirs.get(key))
            for key in sorted(mine.keys() | theirs.keys())
            if mine.get(key) != theirs.get(key)
        },
        labels=label_differences(first, second),
        figures=tuple(_figures(first.metrics, second.metrics)),
        gates=_gates(first, second),
        facts=_facts(first, second),
        origins={name: (_origins(first)[name], _origins(second)[name]) for name in _origins(first)},
    )


def label_differences(first: BundleSpec, second: BundleSpec) -> tuple[LabelDifference, ...]:
    """Heads whose labels, or their order, are not the same in both."""
    before, after = first.task.label_sets, second.task.label_sets
    found = []
    for head in dict.fromkeys([*before, *after]):
        old = before[head].labels if head in before else ()
        new = after[head].labels if head in after else ()
        if old != new:
            added = tuple(label for label in new if label not in old)
            removed = tuple(label for label in old if label not in new)
            reordered = not added and not removed
            found.append(LabelDifference(head, added, removed, reordered=reordered))
    return tuple(found)


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, by dotted key; lists are values, and so is an empty mapping."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def _settings(spec: BundleSpec) -> dict[str, Any]:
    # Labels have a part of their own, and a head with many would fill the screen.
    hidden = {f"heads.{name}.labels" for name in spec.task.heads}
    settings = flatten(spec.task.model_dump(mode="json"))
    return {key: value for key, value in settings.items() if key not in hidden}


def _figures(
    first: Mapping[str, HeadMetrics], second: Mapping[str, HeadMetrics]
) -> Iterator[FigureDifference]:
    for head in (name for name in first if name in second):
        for figure in _FIGURES:
            both = (first[head], second[head])
            values, intervals = (
                tuple(getattr(metrics, name) for metrics in both)
                for name in (figure, f"{figure}_interval")
            )
            yield FigureDifference(head, figure, values, intervals)


def _gates(
    first: BundleSpec, second: BundleSpec
) -> dict[str, tuple[GateResult | None, GateResult | None]]:
    mine, theirs = (
        {gate.gate: gate for gate in spec.gates if gate.variant == spec.variant}
        for spec in (first, second)
    )
    return {name: (mine.get(name), theirs.get(name)) for name in dict.fromkeys([*mine, *theirs])}


def _facts(first: BundleSpec, second: BundleSpec) -> dict[str, tuple[float | None, float | None]]:
    mine, theirs = (spec.facts.get(spec.variant) for spec in (first, second))
    return {
        told: (getattr(mine, name, None), getattr(theirs, name, None))
        for told, name in (
            ("megabytes", "megabytes"),
            ("windows/s, one thread", "windows_per_s"),
            ("95 % of windows under ms", "p95_ms"),
            ("MiB resident", "resident_mib"),
        )
    }


def _origins(spec: BundleSpec) -> dict[str, str]:
    teachers = ", ".join(map(str, spec.distilled.teachers)) if spec.distilled else ""
    return {
        "variant": spec.variant,
        "backbone": spec.backbone,
        "training run": spec.training_run,
        "data digest": spec.data_digest[:12],
        "settings digest": spec.task.digest[:12],
        "cleaner": spec.cleaner_version,
        "taught by": teachers or "labels alone",
    }
