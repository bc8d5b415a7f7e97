"""Bottleneck adapters: what they train, and that they go where the model goes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from transformers import AlbertConfig, AlbertModel

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.backbone import load_encoder
from pipeline.model.bottleneck import (
    ADAPTERS_FILE,
    Bottleneck,
    adapter_weights,
    freeze_around_adapters,
    insert_adapters,
)
from pipeline.model.checkpoint import load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.export import export_onnx
from pipeline.model.fit import fit
from pipeline.model.gate import TorchEncoder
from pipeline.model.half import convert_to_half
from pipeline.model.network import Classifier
from pipeline.model.recipe import Recipe, choose_recipe
from pipeline.model.record_logits import record_logits
from schemas.errors import ArtifactError, ConfigError
from schemas.train import AdapterConfig, TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.window import Window

    MakeEncoder = Callable[..., nn.Module]

WIDTH = 4


def adapted(encoder: nn.Module, *, norms: bool = True) -> tuple[Classifier, Classifier]:
    """A classifier without adapters, and the same with fresh ones."""
    plain = Classifier(encoder, n_logits=3, pooling="mean", dropout=0.0).eval()
    model = copy.deepcopy(plain)
    config = AdapterConfig(width=WIDTH, norms=norms)
    insert_adapters(model.encoder, config)
    freeze_around_adapters(model.encoder, config)
    return plain, model


def stir(model: Classifier) -> None:
    """Lets adapters do something."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in adapter_weights(model.encoder).values():
            value.copy_(torch.randn(value.shape, generator=generator) * 0.5)


def test_training_starts_at_the_pretrained_function_and_moves_adapters_alone(
    family: str, family_encoder: MakeEncoder, some_windows: list[Window]
) -> None:
    plain, model = adapted(family_encoder(family), norms=False)
    before, after = (TorchEncoder(each).logits(some_windows) for each in (plain, model))
    np.testing.assert_array_equal(after, before)
    names = [n for n, weight in model.encoder.named_parameters() if weight.requires_grad]
    assert names == list(adapter_weights(model.encoder))
    assert len(names) == 2 * 4  # of both layers two weights and two biases
    ids = torch.tensor([some_windows[2].input_ids])
    model(ids, torch.ones_like(ids))[0, 0].backward()
    grads = {n for n, weight in model.named_parameters() if weight.grad is not None}
    assert grads == {f"encoder.{name}" for name in names} | {"heads.weight", "heads.bias"}
    # What widens is zero, so that at first it alone has a gradient.
    assert {n for n in grads if model.get_parameter(n).grad.any()} == {
        name for name in grads if ".down." not in name
    }


def test_the_exported_graph_has_the_adapters(
    family: str, family_encoder: MakeEncoder, some_windows: list[Window], tmp_path: Path
) -> None:
    plain, model = adapted(family_encoder(family))
    stir(model)
    twin = copy.deepcopy(model)  # as shards of a model are made
    wanted = TorchEncoder(twin).logits(some_windows)
    export_onnx(model, tmp_path / "model.onnx")
    exported, reference = OnnxEncoder(tmp_path / "model.onnx"), TorchEncoder(model)
    np.testing.assert_array_equal(reference.logits(some_windows), wanted)
    np.testing.assert_allclose(exported.logits(some_windows), wanted, atol=1e-4)
    assert np.abs(wanted - TorchEncoder(plain).logits(some_windows)).max() > 1e-2


def test_half_precision_has_them_too(
    family_encoder: MakeEncoder, some_windows: list[Window], tmp_path: Path
) -> None:
    _, model = adapted(family_encoder("bert"))
    stir(model)
    export_onnx(model, tmp_path / "model.onnx")
    half = OnnxEncoder(convert_to_half(tmp_path / "model.onnx", tmp_path / "half.onnx"))
    np.testing.assert_allclose(
        half.logits(some_windows), TorchEncoder(model).logits(some_windows), atol=2e-2
    )


def test_an_adapter_by_hand() -> None:
    adapter = Bottleneck(3, 2)
    with torch.no_grad():
        adapter.down.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]))
        adapter.up.weight.copy_(torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
    hidden = torch.tensor([[3.0, 4.0, 5.0]])
    gelu = torch.nn.functional.gelu(torch.tensor([3.0, -4.0]))
    assert torch.allclose(
        adapter(hidden), torch.tensor([[3.0, 4.0 + 2 * float(gelu[0]), 5.0 + float(gelu[1])]])
    )


def test_norms_train_where_asked_but_those_of_embeddings(family_encoder: MakeEncoder) -> None:
    _, model = adapted(family_encoder("bert"), norms=True)
    trained = {n for n, weight in model.encoder.named_parameters() if weight.requires_grad}
    norms = {
        f"encoder.layer.{layer}.{part}LayerNorm.{kind}"
        for layer in (0, 1)
        for part in ("attention.output.", "output.")
        for kind in ("weight", "bias")
    }
    assert trained == norms | adapter_weights(model.encoder).keys()


def test_a_backbone_without_known_layers_is_refused() -> None:
    sizes = {"embedding_size": 16, "hidden_size": 16, "intermediate_size": 32}
    encoder = AlbertModel(AlbertConfig(**sizes, vocab_size=64, num_attention_heads=2))
    with pytest.raises(ConfigError, match=r"train\.adapter: got a backbone of kind 'albert'"):
        insert_adapters(encoder, AdapterConfig())


@pytest.fixture
def trained(
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> tuple[Classifier, dict[str, torch.Tensor], list[float]]:
    """A model trained for a few epochs with adapters, its weights from before, and its losses."""
    config = toy_config(adapter=AdapterConfig(width=8), gradient_checkpointing=True)
    model = new_classifier(config, toy_heads)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    progress = fit(
        model,
        train=[example for example in toy_examples if example.split == "train"],
        valid=[example for example in toy_examples if example.split == "valid"],
        heads=toy_heads, config=config, recipe=Recipe(6, 3e-2, "a test", 8, 1e-2),
    )  # fmt: skip
    return model.eval(), before, [row["train_loss"] for row in progress.history]


def test_a_trained_model_goes_to_disk_and_back(
    trained: tuple[Classifier, dict[str, torch.Tensor], list[float]],
    tiny_tokenizer_path: Path,
    toy_config: Callable[..., TrainConfig],
    toy_heads: tuple[HeadSlice, ...],
    toy_examples: list[Example],
    tmp_path: Path,
) -> None:
    model, before, losses = trained
    assert losses[-1] < 0.7 * losses[0]
    moved = {n for n, w in model.state_dict().items() if not torch.equal(w, before[n])}
    assert all("adapter" in n or "LayerNorm" in n or n.startswith("heads.") for n in moved)
    assert {f"encoder.{name}" for name in adapter_weights(model.encoder)} < moved

    folder, config = tmp_path / "checkpoint", toy_config(adapter=AdapterConfig(width=8))
    save_checkpoint(model, folder, tokenizer=tiny_tokenizer_path)
    loaded = load_checkpoint(folder, config, toy_heads)
    logits = [record_logits(each, toy_examples[:20], pad_id=0) for each in (model, loaded)]
    assert np.array_equal(*logits)
    # The encoder beside them is one of its family, with nothing that it does not know.
    plain = load_encoder(f"path:{folder}", dropout=0.0).state_dict()
    assert plain.keys() == load_encoder(config.backbone, dropout=0.0).state_dict().keys()
    for wrong, count in ((None, 0), (AdapterConfig(width=9), 8)):
        with pytest.raises(ArtifactError, match=rf"got 8 weights of adapters, expected {count} of"):
            load_checkpoint(folder, toy_config(adapter=wrong), toy_heads)
    with pytest.raises(ConfigError, match="got a checkpoint with adapters"):
        new_classifier(toy_config(backbone=f"path:{folder}"), toy_heads)
    assert (folder / ADAPTERS_FILE).exists()


@pytest.mark.parametrize(("hidden_size", "rate"), [(384, 1e-3), (768, 4e-4)])
def test_adapters_want_a_higher_rate(hidden_size: int, rate: float) -> None:
    recipe = choose_recipe(
        TrainConfig(adapter=AdapterConfig()), n_train=500, hidden_size=hidden_size
    )
    assert recipe.learning_rate == rate
    assert recipe.why.endswith("wide, adapters")


def test_heads_start_as_without_adapters(
    toy_config: Callable[..., TrainConfig], toy_heads: tuple[HeadSlice, ...]
) -> None:
    one, other = (
        new_classifier(toy_config(adapter=adapter), toy_heads)
        for adapter in (None, AdapterConfig())
    )
    assert torch.equal(one.heads.weight, other.heads.weight)
