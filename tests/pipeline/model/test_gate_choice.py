"""Which variant ships, by its gates, and what is told where none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.model.gate import choose_variant, reason_for
from schemas.bundle import GateResult
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from schemas.task import Variant


def gate(variant: Variant, value: float, *, passed: bool) -> GateResult:
    return GateResult(
        variant=variant, gate="size", value=value, rule="<=", threshold=1.0, passed=passed
    )


def test_the_first_preferred_variant_that_passes_wins() -> None:
    gates = [
        gate("fp32", 0.1, passed=True),
        gate("int8_dynamic", 0.2, passed=True),
        gate("int8_static", 0.3, passed=True),
        gate("int8_static", 3.0, passed=False),
    ]
    assert choose_variant(("int8_static", "int8_dynamic", "fp32"), gates) == "int8_dynamic"
    assert choose_variant(("fp32", "int8_dynamic"), gates) == "fp32"


def test_a_variant_without_gates_is_never_chosen() -> None:
    gates = [
        GateResult(variant="fp32", gate="parity", value=0, rule="<=", threshold=1e-3, passed=True),
        gate("fp32", 0.1, passed=True),
    ]
    assert choose_variant(("int8_static", "fp32"), gates) == "fp32"


def test_when_none_passes_each_failed_gate_is_told_with_its_number() -> None:
    gates = [
        gate("fp32", 2.5, passed=False),
        gate("int8_static", 0.5, passed=True),
        gate("int8_static", float("nan"), passed=False),
    ]
    with pytest.raises(ArtifactError) as caught:
        choose_variant(("int8_static", "fp32"), gates)
    assert str(caught.value) == (
        "no variant of int8_static, fp32 passes its gates: "
        "fp32 size: 2.5 <= 1 FAILED (by 1.5); int8_static size: nan <= 1 FAILED (by nan)"
    )


def test_a_failed_gate_that_is_known_says_what_to_try() -> None:
    gates = [
        GateResult(
            variant="fp32", gate=f"certain_macro_f1_drop.queue{lang}", value=0.05, rule="<=",
            threshold=0.01, passed=False,
        )
        for lang in ("", ".de")
    ]  # fmt: skip
    with pytest.raises(ArtifactError) as caught:
        choose_variant(("fp32",), gates)
    assert "drop.queue.de: 0.05 <= 0.01 FAILED (by 0.04); to try: certain_" in str(caught.value)
    assert str(caught.value).count("compress.keep_fp32=auto") == 1


def test_the_reason_for_a_choice_names_what_failed_before_it() -> None:
    gates = [
        gate("fp32", 0.1, passed=True),
        gate("int8_dynamic", 0.2, passed=True),
        gate("int8_static", 3.0, passed=False),
    ]
    prefer: tuple[Variant, ...] = ("int8_static", "fp16", "int8_dynamic", "fp32")
    assert reason_for("int8_dynamic", prefer, gates) == (
        "int8_dynamic is the first of compress.prefer that passes all of its gates; before it "
        "int8_static size: 3 <= 1 FAILED (by 2); fp16 was not made"
    )
    assert reason_for("fp32", ("fp32",), gates) == (
        "fp32 is the first choice of compress.prefer and passes all of its gates"
    )


def test_an_export_that_is_wrong_blocks_every_variant() -> None:
    gates = [
        gate("int8_static", 0.5, passed=True),
        GateResult(
            variant="fp32", gate="parity", value=0.3, rule="<=", threshold=1e-3, passed=False
        ),
    ]
    with pytest.raises(ArtifactError, match=r"fp32 parity: 0\.3 <= 0\.001 FAILED"):
        choose_variant(("int8_static",), gates)
