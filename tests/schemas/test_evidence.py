"""What travels to a person is bounded, and says what it left behind."""

from __future__ import annotations

import json

from schemas.bundle import GateResult
from schemas.evidence import Evidence, ModelFigures, SliceEvidence

FIGURES = ModelFigures(
    training_run="r", backbone="b", variant="fp32", digest="d", data_digest="d", weights_digest="w"
)


def evidence(*, slices: int, gates: int) -> Evidence:
    return Evidence(
        new=FIGURES,
        slices=tuple(
            SliceEvidence(head="queue", lang=f"l{number}", rows=40, macro_f1=number / 1000)
            for number in range(slices)
        ),
        gates=tuple(
            GateResult(
                variant="fp32", gate=f"g{number}", value=0.0, rule="<=", threshold=1.0, passed=True
            )
            for number in range(gates)
        ),
    )


def test_what_fits_stays_as_it_is() -> None:
    found = evidence(slices=3, gates=3)
    assert found.bounded() == found


def test_what_is_too_much_loses_the_last_rows_of_the_longest_table() -> None:
    found = evidence(slices=200, gates=30)
    kept = found.bounded(8000)
    assert len(kept.model_dump_json().encode()) <= 8000
    assert kept.gates == found.gates
    assert kept.slices == found.slices[: len(kept.slices)]
    assert kept.left_out == {"slices": 200 - len(kept.slices)}
    assert 30 <= len(kept.slices) < 200


def test_bounding_again_adds_to_what_was_left_out() -> None:
    once = evidence(slices=200, gates=0).bounded(6000)
    twice = once.bounded(3000)
    assert twice.left_out == {"slices": 200 - len(twice.slices)}


def test_what_has_no_rows_ends() -> None:
    assert evidence(slices=2, gates=0).bounded(10).slices == ()


def test_a_figure_that_is_no_number_travels_as_a_word() -> None:
    gate = GateResult(
        variant="fp16", gate="finite_outputs", value=float("nan"), rule=">=", threshold=1.0,
        passed=False,
    )  # fmt: skip
    found = evidence(slices=0, gates=0).model_copy(update={"gates": (gate,)})
    told = json.loads(found.model_dump_json())
    assert told["gates"][0]["value"] == "NaN"
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert str(Evidence.model_validate(told).gates[0].value) == "nan"
