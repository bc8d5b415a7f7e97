from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import head_slices
from pipeline.model.export import export_onnx
from pipeline.model.gate import (
    TorchEncoder,
    choose_variant,
    neighbour_effect,
    parity_batches,
    parity_gate,
    variant_gates,
)
from pipeline.model.outputs import Outputs, run_encoder
from pipeline.window import Window
from schemas.bundle import GateResult
from schemas.errors import ArtifactError
from schemas.task import CompressConfig, HeadConfig

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import Variant, WindowPooling

NAN = float("nan")


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
    gates = [gate("fp32", 0.1, passed=True)]
    assert choose_variant(("int8_static", "fp32"), gates) == "fp32"


def test_when_none_passes_each_failed_gate_is_told_with_its_number() -> None:
    gates = [
        gate("fp32", 2.5, passed=False),
        gate("int8_static", 0.5, passed=True),
        gate("int8_static", NAN, passed=False),
    ]
    with pytest.raises(ArtifactError) as caught:
        choose_variant(("int8_static", "fp32"), gates)
    assert str(caught.value) == (
        "no variant of int8_static, fp32 passes its gates: "
        "fp32 size: 2.5 <= 1 FAILED; int8_static size: nan <= 1 FAILED"
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


@pytest.fixture
def exported(tiny_model: Classifier, tmp_path: Path) -> Path:
    export_onnx(tiny_model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def measure(
    path: Path, model: Classifier, examples: list[Example], heads: tuple[HeadSlice, ...]
) -> dict[str, GateResult]:
    outputs: Outputs = run_encoder(TorchEncoder(model), examples)
    found = variant_gates(
        "fp32", path, texts=examples, n_valid=len(examples), reference=outputs, heads=heads,
        config=CompressConfig(),
    )  # fmt: skip
    return {result.gate: result for result in found}


def test_an_honest_export_passes_every_gate(
    exported: Path,
    tiny_model: Classifier,
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
) -> None:
    gates = measure(exported, tiny_model, toy_examples[:30], toy_heads)
    assert {name: result.value for name, result in gates.items()} == {
        "finite_outputs": 1.0,
        "neighbour_effect": 0.0,
        "label_agreement.queue": 1.0,
        "certain_macro_f1_drop.queue": 0.0,
        "label_agreement.topics": 1.0,
        "certain_macro_f1_drop.topics": 0.0,
    }
    assert all(result.passed for result in gates.values())


def test_nan_weights_fail_the_finite_gate_and_parity(
    exported: Path,
    tiny_model: Classifier,
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
) -> None:
    alter(exported, "heads.bias", lambda bias: np.full_like(bias, NAN))
    gates = measure(exported, tiny_model, toy_examples[:10], toy_heads)
    assert gates["finite_outputs"].value == 0.0
    assert not gates["finite_outputs"].passed
    assert not gates["neighbour_effect"].passed
    batches = parity_batches([toy_examples[0].windows[0]], pad_id=0)
    parity = parity_gate(
        TorchEncoder(tiny_model), OnnxEncoder(exported), batches, config=CompressConfig()
    )
    assert np.isnan(parity.value)
    assert not parity.passed


def test_other_labels_fail_agreement(
    exported: Path,
    tiny_model: Classifier,
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
) -> None:
    alter(exported, "heads.bias", lambda bias: bias + np.array([0, 0, 50, 0, 0], bias.dtype))
    gates = measure(exported, tiny_model, toy_examples[:30], toy_heads)
    assert not gates["label_agreement.queue"].passed
    assert gates["label_agreement.topics"].passed


class OneBadBatch(TorchEncoder):
    """NaN for a batch with an all-padding row, as some fused attention gives."""

    def run(self, inputs: dict[str, Any]) -> Any:
        logits = super().run(inputs).copy()
        logits[inputs["attention_mask"].sum(axis=1) == 0] = NAN
        return logits


def test_nan_in_a_single_batch_does_not_pass_parity(
    exported: Path, tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    batches = parity_batches([toy_examples[0].windows[0]], pad_id=0)
    result = parity_gate(
        OneBadBatch(tiny_model), OnnxEncoder(exported), batches, config=CompressConfig()
    )
    assert np.isnan(result.value)
    assert not result.passed


class Neighbourly(OnnxEncoder):
    """Answers that depend on the row before, as dynamic INT8 does in a batch."""

    def logits(self, windows: Any) -> Any:
        alone = super().logits(windows)
        return alone + np.roll(alone, 1, axis=0) * 0.01


def test_neighbour_effect_is_zero_alone_and_seen_otherwise(
    exported: Path, toy_examples: list[Example]
) -> None:
    assert neighbour_effect(OnnxEncoder(exported), toy_examples) == 0.0
    assert neighbour_effect(Neighbourly(exported), toy_examples) > 0.001


def test_parity_batches_have_many_shapes_and_an_empty_row() -> None:
    windows = [Window((2, *range(10, 10 + length), 3), (0,) * (length + 2), 0, 1)
               for length in (3, 20, 50)]  # fmt: skip
    batches = parity_batches(windows, pad_id=1)
    shapes = {batch["input_ids"].shape for batch in batches}
    assert {rows for rows, _ in shapes} == {1, 2, 3}
    # No longer than the longest window: the model may have no more positions.
    assert {length for _, length in shapes} == {1, 2, 3, 7, 16, 33, 52}
    assert [(batch["attention_mask"].sum(axis=1) == 0).any() for batch in batches].count(True) == 1
    assert (batches[-1]["attention_mask"].sum(axis=1) == 0).any()
    for batch in batches[:-1]:
        assert (batch["input_ids"][batch["attention_mask"] == 0] == 1).all()


def test_parity_batches_of_one_short_window() -> None:
    batches = parity_batches([Window((2, 3), (0, 0), 0, 0)], pad_id=0)
    assert {batch["input_ids"].shape[1] for batch in batches} == {1, 2}


def alter(path: Path, initializer: str, change: Any) -> None:
    model = onnx.load(str(path))
    (tensor,) = [found for found in model.graph.initializer if found.name == initializer]
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), initializer))
    onnx.save(model, str(path))


ASPECTS = head_slices(
    {
        "mood": HeadConfig(kind="aspect", column="mood", labels=("good", "bad"), aspects=("food",)),
        "queue": HeadConfig(column="queue", labels=("a", "b")),
    }
)


def aspect_examples(examples: list[Example]) -> list[Example]:
    """Each third record says nothing of the food, or good, or bad of it."""
    return [
        type(example)(**{**vars(example), "targets": {"mood": (row % 3,), "queue": None}})
        for row, example in enumerate(examples)
    ]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_gates_of_an_aspect_head(
    pooling: WindowPooling, exported: Path, tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    examples = aspect_examples(toy_examples[:30])
    outputs = run_encoder(TorchEncoder(tiny_model), examples, pooling=pooling)
    (agreement, drop) = (
        {result.gate: result for result in variant_gates(
            "fp32", exported, texts=examples, n_valid=30, reference=outputs, heads=ASPECTS,
            config=CompressConfig(),
        )}[name] for name in ("label_agreement.mood", "certain_macro_f1_drop.mood")
    )  # fmt: skip
    assert (agreement.value, agreement.passed) == (1.0, True)
    assert (drop.value, drop.passed) == (0.0, True)


def test_other_choices_of_an_aspect_fail_agreement(
    exported: Path, tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    examples = aspect_examples(toy_examples[:30])
    alter(exported, "heads.bias", lambda bias: bias + np.array([0, 0, 50, 0, 0], bias.dtype))
    gates = measure(exported, tiny_model, examples, ASPECTS)
    assert not gates["label_agreement.mood"].passed
    assert gates["label_agreement.queue"].passed
