"""The whole cut on a model that has learned something, its curve, its sizes, and recovery."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pipeline.batch import window_inputs
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.checkpoint import load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.export import export_onnx
from pipeline.model.fit import fit
from pipeline.model.gate import TorchEncoder
from pipeline.model.half import convert_to_half
from pipeline.model.prune.cut import keep_parts, shape_of
from pipeline.model.prune.pruner import Pruner
from pipeline.model.prune.recovery import recovery_config, recovery_recipe
from pipeline.model.prune.sizes import model_size
from pipeline.model.quantize import (
    prepare_for_quantization,
    quantize_to_dynamic,
    quantize_to_static,
)
from pipeline.model.recipe import Recipe
from pipeline.model.record_logits import record_logits
from schemas.errors import ConfigError, DataContractError
from schemas.prune import PruneConfig
from schemas.train import AdapterConfig, LoraConfig, TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.window import Window

    Configs = Callable[..., TrainConfig]
    Heads = tuple[HeadSlice, ...]

RECIPE = Recipe(epochs=8, learning_rate=3e-3, why="", batch_size=16, head_learning_rate=1e-2)


def pruner(examples: list[Example], slices: Heads, config: TrainConfig, **prune: Any) -> Pruner:
    settings = PruneConfig.model_validate({"curve": (), **prune})
    return Pruner(examples, slices, train=config, prune=settings, pad_id=0)


def trained(
    model: Classifier, examples: list[Example], heads: Heads, config: TrainConfig,
    recipe: Recipe = RECIPE, **options: Any,
) -> Any:  # fmt: skip
    train, valid = ([e for e in examples if e.split == s] for s in ("train", "valid"))
    return fit(
        model, train=train, valid=valid, heads=heads, config=config, recipe=recipe, **options
    )


@pytest.fixture(scope="module")
def learned(
    tiny_task: Any, toy_heads: Heads, toy_examples: list[Example]
) -> tuple[Classifier, TrainConfig]:
    config = tiny_task.train.model_copy(update={"dropout": 0.0, "layer_decay": 1.0})
    model = new_classifier(config, toy_heads)
    with torch.random.fork_rng():
        trained(model, toy_examples, toy_heads, config)
    return model.eval(), config


def test_a_cut_tells_what_it_cost_and_what_is_left(
    learned: tuple[Classifier, TrainConfig], toy_examples: list[Example], toy_heads: Heads
) -> None:
    model, config = copy.deepcopy(learned[0]), learned[1]
    settings = {"heads": 0.25, "neurons": 0.5, "curve": (0.0, 0.5), "sample_records": 40}
    cut = pruner(toy_examples, toy_heads, config, **settings).prune(model, fingerprint="f")
    assert cut.fingerprint == "f"
    assert sum(row.heads for row in cut.layers) == 3
    assert sum(row.neurons for row in cut.layers) == 64
    gone = 1 * (4 * 16 * 32 + 3 * 16) + 64 * (2 * 32 + 1)
    assert cut.before.parameters - cut.after.parameters == gone
    assert cut.after.parameters == sum(weight.numel() for weight in model.parameters())
    assert cut.after.megabytes_fp32 == pytest.approx(4e-6 * cut.after.parameters, abs=1e-3)
    assert cut.flops_share == pytest.approx(cut.after.forward_mflops / cut.before.forward_mflops)
    assert 0.5 < cut.flops_share < 0.65  # of heads a quarter goes, of neurons, twice as many, half
    assert cut.valid_macro_f1_whole > 0.8
    points = {(point.part, point.share): point for point in cut.curve}
    assert set(points) == {(part, s) for part in ("heads", "neurons") for s in (0.0, 0.5)}
    for part in ("heads", "neurons"):
        assert points[part, 0.0].flops_share == 1.0
        assert points[part, 0.0].size == cut.before
        # The validation sample is all 40 validation records.
        assert points[part, 0.0].valid_macro_f1 == pytest.approx(cut.valid_macro_f1_whole)
    # A neuron has 2 * 32 + 1 weights; a head 16 rows of three matrices, and columns of a fourth.
    assert points["neurons", 0.5].size.parameters == cut.before.parameters - 64 * 65
    assert points["heads", 0.5].size.parameters == cut.before.parameters - 2 * (16 * 128 + 48)


def test_the_same_cut_twice_is_the_same(
    learned: tuple[Classifier, TrainConfig], toy_examples: list[Example], toy_heads: Heads
) -> None:
    shapes = []
    for _ in range(2):
        model = copy.deepcopy(learned[0])
        made = pruner(toy_examples, toy_heads, learned[1], neurons=0.5, sample_records=20)
        made.prune(model, fingerprint="f")
        shapes.append(shape_of(model.encoder))
        torch.manual_seed(99)  # what others did in between does not count
    assert shapes[0] == shapes[1]


def test_what_matters_most_is_kept(
    learned: tuple[Classifier, TrainConfig], toy_examples: list[Example], toy_heads: Heads
) -> None:
    """The half of the neurons that stays is worth more than the one that goes."""
    made = pruner(toy_examples, toy_heads, learned[1], neurons=0.5)
    best, rest = copy.deepcopy(learned[0]), copy.deepcopy(learned[0])
    made.prune(best, fingerprint="f")
    kept = [layer.neurons for layer in shape_of(best.encoder).layers]
    others = [[n for n in range(64) if n not in neurons] or [0] for neurons in kept]
    keep_parts(rest.encoder, [([0, 1], neurons) for neurons in others])
    assert made.macro_f1(best) > made.macro_f1(rest) + 0.05


def test_layers_go_before_the_rest_is_measured(
    learned: tuple[Classifier, TrainConfig], toy_examples: list[Example], toy_heads: Heads
) -> None:
    model = copy.deepcopy(learned[0])
    cut = pruner(toy_examples, toy_heads, learned[1], layers=[0], neurons=0.25).prune(
        model, fingerprint="f"
    )
    assert [(row.layer, row.heads, row.neurons) for row in cut.layers] == [(1, 2, 48)]
    assert cut.flops_share < 0.5


def test_the_work_of_a_layer_by_hand(tiny_model: Classifier) -> None:
    """Of two layers 32 wide with 64 neurons: a product and a sum for each weight and token."""
    weights = 2 * (4 * 32 * 32 + 2 * 32 * 64)
    found = model_size(tiny_model, tokens=10.0)
    assert found.forward_mflops * 1e6 == pytest.approx(
        2 * 10 * weights + 2 * (2 * 2 * 10 * 10 * 32), abs=600
    )


def test_nothing_to_measure_on_is_told(toy_examples: list[Example], toy_heads: Heads) -> None:
    some = [example for example in toy_examples if example.split != "valid"]
    with pytest.raises(DataContractError, match="no valid records to measure on"):
        pruner(some, toy_heads, TrainConfig(), heads=0.5)


def test_a_pruned_model_recovers_and_resumes_to_the_bit(
    learned: tuple[Classifier, TrainConfig], toy_examples: list[Example], toy_heads: Heads,
    tiny_tokenizer_path: Path, tmp_path: Path,
) -> None:  # fmt: skip
    model, config = copy.deepcopy(learned[0]), learned[1]
    settings = PruneConfig(heads=0.5, neurons=0.75, recovery_epochs=2, curve=())
    made = Pruner(toy_examples, toy_heads, train=config, prune=settings, pad_id=0)
    cut = made.prune(model, fingerprint="f")
    save_checkpoint(model, tmp_path, tokenizer=tiny_tokenizer_path)
    recipe = recovery_recipe(config, settings, n_train=160, hidden_size=32)
    assert recipe.epochs == 2
    assert recipe.learning_rate == config.learning_rate / 2
    states: list[dict[str, Any]] = []

    def keep(progress: Any, state: dict[str, Any], is_best: bool) -> None:
        del progress, is_best
        states.append(copy.deepcopy(state))

    starts = [load_checkpoint(tmp_path, config, toy_heads) for _ in range(2)]
    progress = trained(starts[0], toy_examples, toy_heads, config, recipe, on_epoch=keep)
    trained(starts[1], toy_examples, toy_heads, config, recipe, resume=states[0])
    for one, other in zip(starts[0].parameters(), starts[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert shape_of(starts[0].encoder) == shape_of(model.encoder)
    assert progress.best_metric > cut.valid_macro_f1_cut
    # And through the disk once more.
    save_checkpoint(starts[0], tmp_path / "done", tokenizer=tiny_tokenizer_path)
    done = load_checkpoint(tmp_path / "done", config, toy_heads)
    before, after = (record_logits(m, toy_examples[:9], pad_id=0) for m in (starts[0], done))
    np.testing.assert_array_equal(before, after)


def test_recovery_trains_all_weights_at_the_recipes_lower_rate() -> None:
    config = TrainConfig(learning_rate=1e-3, lora=LoraConfig())
    found = recovery_config(config)
    assert found.lora is None
    assert found.learning_rate is None  # that of low-rank updates is too high
    assert recovery_config(TrainConfig(learning_rate=1e-3, frozen_layers=2)) == TrainConfig(
        learning_rate=1e-3
    )
    settings = PruneConfig(heads=0.5, recovery_epochs=4, recovery_learning_rate=2e-5)
    recipe = recovery_recipe(found, settings, n_train=100, hidden_size=384)
    assert (recipe.epochs, recipe.learning_rate) == (4, 2e-5)
    assert recipe.head_learning_rate == pytest.approx(1e-3 * 2e-5 / 2e-4)


def test_adapters_stay_through_a_cut(
    toy_config: Configs, toy_examples: list[Example], toy_heads: Heads,
    tiny_tokenizer_path: Path, tmp_path: Path,
) -> None:  # fmt: skip
    config = toy_config(adapter=AdapterConfig(width=4))
    model = new_classifier(config, toy_heads).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".adapter.up." in name:
                weight.normal_(std=0.5)
    pruner(toy_examples, toy_heads, config, heads=0.5, neurons=0.5).prune(model, fingerprint="f")
    save_checkpoint(model, tmp_path, tokenizer=tiny_tokenizer_path)
    loaded = load_checkpoint(tmp_path, config, toy_heads)
    before, after = (record_logits(m, toy_examples[:9], pad_id=0) for m in (model, loaded))
    np.testing.assert_array_equal(before, after)


def test_a_pruned_checkpoint_is_a_backbone(
    learned: tuple[Classifier, TrainConfig], toy_examples: list[Example], toy_heads: Heads,
    tiny_tokenizer_path: Path, tmp_path: Path, toy_config: Configs,
) -> None:  # fmt: skip
    model = copy.deepcopy(learned[0])
    pruner(toy_examples, toy_heads, learned[1], heads=0.5).prune(model, fingerprint="f")
    save_checkpoint(model, tmp_path, tokenizer=tiny_tokenizer_path)
    fresh = new_classifier(toy_config(backbone=f"path:{tmp_path}"), toy_heads)
    assert shape_of(fresh.encoder) == shape_of(model.encoder)


def pruned(model: Classifier, family: str) -> Classifier:
    heads = [[0, 2], [1], [0, 1, 2]] if family != "longformer" else [[0, 1, 2]] * 3
    neurons = [[*range(8, 24)], [*range(8)], [*range(32)]]
    keep_parts(model.encoder, list(zip(heads, neurons, strict=True)))
    return model


def test_the_graph_of_a_pruned_model_agrees_with_it(
    family: str, classifier_of: Callable[..., Classifier], some_windows: list[Window],
    tmp_path: Path,
) -> None:  # fmt: skip
    model = pruned(classifier_of(family), family)
    export_onnx(model, tmp_path / "fp32.onnx")
    exported, reference = OnnxEncoder(tmp_path / "fp32.onnx"), TorchEncoder(model)
    np.testing.assert_allclose(
        exported.logits(some_windows), reference.logits(some_windows), atol=1e-4
    )
    together = window_inputs(some_windows, pad_id=1, multiple=8)
    np.testing.assert_allclose(exported.run(together), reference.run(together), atol=1e-4)


@pytest.mark.parametrize(
    "family",
    [
        "bert",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("mpnet", "distilbert", "modernbert")
        ),
    ],
)
def test_smaller_variants_of_a_pruned_model_agree_with_it(
    family: str, classifier_of: Callable[..., Classifier], some_windows: list[Window],
    tmp_path: Path,
) -> None:  # fmt: skip
    """As far as unpruned ones do: layers differ in their number of heads, which fusions count."""
    model = pruned(classifier_of(family), family)
    names = export_onnx(model, tmp_path / "fp32.onnx")
    expected = TorchEncoder(model).logits(some_windows)
    convert_to_half(tmp_path / "fp32.onnx", tmp_path / "fp16.onnx")
    prepared = prepare_for_quantization(tmp_path / "fp32.onnx", tmp_path / "prepared.onnx")
    quantize_to_dynamic(prepared, tmp_path / "dynamic.onnx")
    quantize_to_static(
        prepared, tmp_path / "static.onnx", calibration=some_windows, input_names=names
    )
    spread = float(np.abs(expected).max())
    # Of these random weights the whole MPNet is off by 0.035 in FP16 and 0.054 in static INT8.
    for kind, most in (("fp16", 0.05), ("dynamic", 0.15), ("static", 0.15)):
        found = OnnxEncoder(tmp_path / f"{kind}.onnx").logits(some_windows)
        assert float(np.abs(found - expected).max()) < most * spread


def test_pruned_heads_of_a_longformer_are_refused_before_anything_is_measured(
    classifier_of: Callable[..., Classifier], toy_examples: list[Example], toy_heads: Heads
) -> None:
    model = classifier_of("longformer")
    model.heads = torch.nn.Linear(24, toy_heads[-1].columns.stop)
    with pytest.raises(ConfigError, match="'longformer' needs all of its heads"):
        pruner(toy_examples[:60], toy_heads, TrainConfig(), heads=0.5).prune(model, fingerprint="f")
