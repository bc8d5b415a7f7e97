from __future__ import annotations

from pipeline.model.gate_table import gate_table
from schemas.bundle import GateResult


def test_a_gate_is_a_line_and_columns_are_aligned() -> None:
    gates = [
        GateResult(
            variant="fp32", gate="parity", value=1.9e-6, rule="<=", threshold=1e-3, passed=True
        ),
        GateResult(
            variant="int8_static", gate="label_agreement.queue", value=0.9512, rule=">=",
            threshold=0.97, passed=False,
        ),
        GateResult(
            variant="fp16", gate="finite_outputs", value=float("nan"), rule=">=", threshold=1.0,
            passed=False,
        ),
    ]  # fmt: skip
    assert gate_table(gates).splitlines() == [
        "variant      gate                     value     asked  outcome",
        "fp32         parity                 1.9e-06  <= 0.001  passed",
        "int8_static  label_agreement.queue   0.9512   >= 0.97  FAILED",
        "fp16         finite_outputs             nan      >= 1  FAILED",
    ]


def test_long_names_stay_on_their_line() -> None:
    gate = GateResult(
        variant="int8_blockwise", gate="certain_macro_f1_drop." + "x" * 60, value=0.5, rule="<=",
        threshold=0.01, passed=False,
    )  # fmt: skip
    assert len(gate_table([gate]).splitlines()) == 2
