"""What two bundles do not have in common, by value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.bundle import load_spec
from pipeline.bundle_difference import FigureDifference, compare_bundles, flatten
from schemas.bundle import BundleSpec, GateResult, VariantFacts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def spec(tiny_bundle: Path) -> BundleSpec:
    return load_spec(tiny_bundle)


def gate(value: float, *, passed: bool) -> GateResult:
    return GateResult(
        variant="fp32", gate="parity", value=value, rule="<=", threshold=0.5, passed=passed
    )


def test_equal_bundles_have_no_difference(spec: BundleSpec) -> None:
    found = compare_bundles(spec, spec)
    assert (found.settings, found.labels, found.gates) == ({}, (), {})
    assert all(figure.values[0] == figure.values[1] and figure.overlap for figure in found.figures)
    assert len(found.figures) == 4  # of two heads, accuracy and macro-F1


def test_settings_labels_gates_and_facts_are_told_by_side(spec: BundleSpec) -> None:
    queue = spec.task.heads["queue"]
    labels = ("billing", "returns", "shipping")
    train = spec.task.train.model_copy(update={"epochs": 3})
    heads = spec.task.heads | {"queue": queue.model_copy(update={"labels": labels})}
    task = spec.task.model_copy(update={"train": train, "heads": heads})
    changed = spec.model_copy(
        update={
            "task": task,
            "gates": (gate(0.7, passed=False),),
            "facts": {"fp32": VariantFacts(megabytes=8.5, windows_per_s=120.0)},
            "data_digest": "1" * 64,
        }
    )
    found = compare_bundles(spec, changed)
    assert found.settings == {"train.epochs": (1, 3)}  # labels are told beside it
    (label,) = found.labels
    assert (label.head, label.added, label.removed) == ("queue", ("returns",), ("technical",))
    assert not label.reordered
    assert found.gates == {"parity": (None, gate(0.7, passed=False))}
    assert found.facts["megabytes"] == (None, 8.5)
    assert found.facts["windows/s, one thread"] == (None, 120.0)
    assert found.origins["data digest"] == ("0" * 12, "1" * 12)
    assert found.origins["taught by"] == ("labels alone", "labels alone")


def test_another_order_of_labels_is_a_difference(spec: BundleSpec) -> None:
    queue = spec.task.heads["queue"]
    turned = queue.model_copy(update={"labels": queue.labels[::-1]})
    heads = spec.task.heads | {"queue": turned}
    other = spec.model_copy(update={"task": spec.task.model_copy(update={"heads": heads})})
    (label,) = compare_bundles(spec, other).labels
    assert (label.added, label.removed, label.reordered) == ((), (), True)


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ((0.1, 0.3), (0.2, 0.4), True),
        ((0.1, 0.3), (0.3, 0.4), True),
        ((0.1, 0.3), (0.4, 0.5), False),
        ((0.4, 0.5), (0.1, 0.3), False),
        ((0.1, 0.9), (0.2, 0.3), True),
    ],
)
def test_intervals_overlap_where_they_share_a_value(
    first: tuple[float, float], second: tuple[float, float], overlap: bool
) -> None:
    assert FigureDifference("h", "accuracy", (0.2, 0.3), (first, second)).overlap == overlap


def test_nested_settings_become_dotted_keys() -> None:
    nested = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": {}, "f": None}
    assert flatten(nested) == {"a.b": 1, "a.c.d": [1, 2], "e": {}, "f": None}
