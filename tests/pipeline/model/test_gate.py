from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pipeline.batch import window_inputs
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import head_slices
from pipeline.model.export import export_onnx
from pipeline.model.gate import (
    AllCores,
    TorchEncoder,
    Watch,
    parity_gate,
    variant_gates,
)
from pipeline.model.gate_checks import drop_by_language, ece_rise, neighbour_effect
from pipeline.model.gate_inputs import parity_batches
from pipeline.model.outputs import Outputs, run_encoder
from pipeline.window import Window
from schemas.bundle import GateResult
from schemas.task import CompressConfig, HeadConfig

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import WindowPooling

NAN = float("nan")


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
        "certain_ece_rise.queue": pytest.approx(0.0, abs=1e-3),
        "label_agreement.topics": 1.0,
        "certain_macro_f1_drop.topics": 0.0,
        "certain_ece_rise.topics": pytest.approx(0.0, abs=1e-3),
    }
    assert all(result.passed for result in gates.values())


def test_failure_30_nan_weights_fail_the_finite_gate_and_parity(
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
    assert not gates["certain_ece_rise.queue"].passed
    for told in gates.values():  # a bundle of another variant holds these, too
        copy = GateResult.model_validate_json(told.model_dump_json())
        assert copy == told or (np.isnan(copy.value) and np.isnan(told.value))
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


def test_windows_dealt_out_to_cores_have_the_bytes_and_the_order_of_one(
    exported: Path, toy_examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.model.gate.usable_cpus", lambda: 3)
    windows = [example.windows[0] for example in toy_examples[:70]]
    encoder = OnnxEncoder(exported)
    expected = np.concatenate([encoder.logits([window]) for window in windows])
    for some in (windows, windows[:2]):
        np.testing.assert_array_equal(AllCores(encoder).logits(some), expected[: len(some)])


def test_the_reference_answers_in_the_order_it_is_asked_in(
    tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    windows = [window for example in toy_examples[:40] for window in example.windows]
    assert len({window.n_tokens for window in windows}) > 2
    encoder = TorchEncoder(tiny_model)
    alone = np.concatenate([encoder.run(window_inputs([window])) for window in windows])
    np.testing.assert_allclose(encoder.logits(windows), alone, atol=1e-5)


class OneBadBatch(TorchEncoder):
    """NaN for a batch with an all-padding row, as some fused attention gives."""

    def run(self, inputs: dict[str, Any]) -> Any:
        logits = super().run(inputs).copy()
        logits[inputs["attention_mask"].sum(axis=1) == 0] = NAN
        return logits


def test_failure_28_nan_in_a_single_batch_does_not_pass_parity(
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


def test_failure_47_neighbour_effect_is_zero_alone_and_seen_otherwise(
    exported: Path, toy_examples: list[Example]
) -> None:
    assert neighbour_effect(OnnxEncoder(exported), toy_examples) == 0.0
    assert neighbour_effect(Neighbourly(exported), toy_examples) > 0.001


def test_failure_28_parity_batches_have_many_shapes_and_an_empty_row() -> None:
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


def test_failure_28_parity_batches_reach_the_limit_and_hold_odd_windows() -> None:
    odd = [Window((2, 7, 3), (0, 0, 0), 0, 0), Window((2, 8, 9, 10, 3), (0,) * 5, 0, 0)]
    batches = parity_batches(odd[:1], pad_id=0, limit=50, odd=odd)
    assert {batch["input_ids"].shape[1] for batch in batches} == {1, 2, 3, 5, 7, 16, 33, 50}
    assert any(batch["input_ids"].tolist() == [[2, 8, 9, 10, 3]] for batch in batches)
    assert any(batch["input_ids"].tolist() == [[2, 7, 3, 0, 0], [2, 8, 9, 10, 3]]
               for batch in batches)  # fmt: skip


def test_failure_29_padding_is_on_the_right_only() -> None:
    windows = [Window((2, *range(10, 20), 3), (0,) * 12, 0, 1)]
    for batch in parity_batches(windows, pad_id=1, limit=40):
        steps = np.diff(batch["attention_mask"], axis=1)
        assert (steps <= 0).all()  # from one to zero once, and never back
    padded = window_inputs([windows[0], Window((2, 3), (0, 0), 0, 1)], pad_id=1, multiple=8)
    assert padded["attention_mask"][1].tolist() == [1, 1, *[0] * 14]


def test_failure_46_swapped_inputs_fail_parity(
    exported: Path, tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    model = onnx.load(str(exported))
    names = {"attention_mask": "token_type_ids", "token_type_ids": "attention_mask"}
    for node in model.graph.node:
        swapped = [names.get(name, name) for name in node.input]
        del node.input[:]
        node.input.extend(swapped)
    onnx.save(model, str(exported))
    batches = parity_batches([toy_examples[0].windows[0]], pad_id=0)
    result = parity_gate(
        TorchEncoder(tiny_model), OnnxEncoder(exported), batches, config=CompressConfig()
    )
    assert result.value > 0.01
    assert not result.passed


def test_failure_33_the_exporter_is_our_own() -> None:
    needed = " ".join(metadata.requires("nightmill") or ())
    assert "transformers==5" in needed
    assert "optimum" not in needed


def test_odd_windows_must_be_finite_as_well(
    exported: Path, tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    class Odd(OnnxEncoder):
        def logits(self, windows: Any) -> Any:
            found = super().logits(windows)
            return found * NAN if windows[0].n_tokens == 2 else found

    watch = Watch([Window((2, 3), (0, 0), 0, 0)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.model.gate.OnnxEncoder", Odd)
        found = variant_gates(
            "fp32", exported, texts=toy_examples[:3], n_valid=3, heads=(),
            reference=run_encoder(TorchEncoder(tiny_model), toy_examples[:3]),
            config=CompressConfig(), watch=watch,
        )  # fmt: skip
    assert (found[0].gate, found[0].value, found[0].passed) == ("finite_outputs", 0.75, False)
    assert list(watch.said) == [exported]


def answers_of(rows: int, wrong: int) -> Outputs:
    """Of `rows` records the first `wrong` are answered with label 1, the others with label 0."""
    logits = np.zeros((rows, 1, 5))
    logits[:, 0, 0] = 4.0
    logits[:wrong, 0, 1] = 8.0
    return Outputs(tuple(logits), tuple(np.array([4]) for _ in range(rows)))


def test_a_language_that_loses_is_not_hidden_by_the_others(
    make_example: Any, toy_heads: tuple[HeadSlice, ...]
) -> None:
    examples = [
        replace(make_example(f"r{n}", queue=0), lang="de" if n < 40 else "en") for n in range(400)
    ]
    found = drop_by_language(
        answers_of(400, 0), answers_of(400, 30), examples, toy_heads[0], least_rows=30
    )
    assert list(found) == ["de", "en"]
    assert found["de"] > 0.5
    assert found["en"] == 0.0
    few = drop_by_language(
        answers_of(400, 0), answers_of(400, 30), examples, toy_heads[0], least_rows=41
    )
    assert list(few) == ["en"]
    one = [replace(example, lang="en") for example in examples]
    assert drop_by_language(answers_of(400, 0), answers_of(400, 30), one, toy_heads[0],
                            least_rows=30) == {}  # fmt: skip


def test_calibration_that_gets_worse_is_seen_though_each_has_its_own_temperature(
    toy_heads: tuple[HeadSlice, ...],
) -> None:
    target = np.zeros(400, np.int64)
    logits = np.zeros((400, 1, 5))
    logits[80:, 0, 0] = logits[:80, 0, 1] = 3.0  # one temperature makes all of them 80 % sure
    honest = Outputs(tuple(logits), tuple(np.array([4]) for _ in range(400)))
    surer = logits.copy()
    surer[:80] *= 4.0  # those that are wrong are the surest, which no temperature mends
    spoilt = Outputs(tuple(surer), honest.n_tokens)
    assert ece_rise(honest, honest, target, toy_heads[0]) == 0.0
    assert ece_rise(honest, spoilt, target, toy_heads[0]) > 0.03
    assert ece_rise(spoilt, honest, target, toy_heads[0]) < 0.0


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
