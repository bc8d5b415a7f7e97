"""Low-rank updates: what they train, and that they leave no trace."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import onnx
import pytest
import torch
from transformers import DistilBertConfig, DistilBertModel

from pipeline.model.adapters import low_rank_updates
from pipeline.model.checkpoint import load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.export import export_onnx
from pipeline.model.fit import fit
from pipeline.model.recipe import Recipe
from schemas.errors import ConfigError
from schemas.task import LoraConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

    Train = Callable[..., tuple[Classifier, dict[str, torch.Tensor]]]

IDS = torch.tensor([[2, 20, 41, 42, 3]])


@pytest.fixture
def train(
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> Train:
    """Trains for two epochs with LoRA; answers the model, and its weights from before."""

    def run(lora: LoraConfig, **changes: object) -> tuple[Classifier, dict[str, torch.Tensor]]:
        config = toy_config(lora=lora, **changes)
        model = new_classifier(config, toy_heads)
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        fit(
            model,
            train=[example for example in toy_examples if example.split == "train"],
            valid=[example for example in toy_examples if example.split == "valid"],
            heads=toy_heads, config=config, recipe=Recipe(2, 1e-2, "a test", 8, 1e-2),
        )  # fmt: skip
        return model.eval(), before

    return run


def moved(model: Classifier, before: dict[str, torch.Tensor]) -> set[str]:
    after = model.state_dict()
    assert list(after) == list(before)
    return {name for name, weight in after.items() if not torch.equal(weight, before[name])}


def test_only_attention_and_heads_move(train: Train) -> None:
    model, before = train(LoraConfig())
    parts = ("self.query", "self.key", "self.value", "output.dense")
    assert moved(model, before) == {"heads.weight", "heads.bias"} | {
        f"encoder.encoder.layer.{layer}.attention.{part}.weight"
        for layer in (0, 1)
        for part in parts
    }
    # What may train is what could before.
    assert all(weight.requires_grad for weight in model.parameters())


def test_an_update_has_the_rank_asked_for(train: Train) -> None:
    model, before = train(LoraConfig(rank=3))
    name = "encoder.encoder.layer.1.attention.self.query.weight"
    update = model.state_dict()[name] - before[name]
    # In fp32 a sum loses some 1e-7 of it: what is left beyond the rank is that.
    sizes = torch.linalg.svdvals(update)
    assert sizes[2] > 1e-4
    assert sizes[3] < 1e-5


def test_all_linear_layers_but_frozen_ones(train: Train) -> None:
    model, before = train(LoraConfig(target="all-linear"), frozen_layers=1)
    encoder = {name for name in moved(model, before) if not name.startswith("heads.")}
    assert len(encoder) == 6
    assert all(name.startswith("encoder.encoder.layer.1.") for name in encoder)
    still = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert still
    assert not any(name.startswith(("encoder.encoder.layer.1.", "heads.")) for name in still)


def test_merged_answers_as_unmerged(tiny_model: Classifier) -> None:
    encoder = tiny_model.encoder
    mask = torch.ones_like(IDS)
    torch.manual_seed(0)
    with torch.no_grad(), low_rank_updates(encoder, LoraConfig(rank=4, dropout=0.2)):
        for name, weight in encoder.named_parameters():
            if "lora_B" in name:  # which starts as zeros
                weight.normal_(std=0.1)
        unmerged = tiny_model.eval()(IDS, mask)
        names = [name for name, weight in encoder.named_parameters() if weight.requires_grad]
        assert len(names) == 16
        assert all("lora_" in name for name in names)
    merged = tiny_model.eval()(IDS, mask)
    torch.testing.assert_close(merged, unmerged, atol=1e-5, rtol=0)
    assert not any("lora" in name for name, _ in encoder.named_modules())


def test_without_a_config_nothing_happens(tiny_model: Classifier) -> None:
    before = list(tiny_model.state_dict())
    with low_rank_updates(tiny_model.encoder, None):
        assert list(tiny_model.state_dict()) == before
        assert all(weight.requires_grad for weight in tiny_model.parameters())


def test_checkpoint_and_graph_know_nothing_of_it(
    train: Train,
    tmp_path: Path,
    tiny_tokenizer_path: Path,
    toy_config: Callable[..., TrainConfig],
    toy_heads: tuple[HeadSlice, ...],
) -> None:
    model, _ = train(LoraConfig())
    save_checkpoint(model, tmp_path / "checkpoint", tokenizer=tiny_tokenizer_path)
    assert not list((tmp_path / "checkpoint").glob("*adapter*"))
    loaded = load_checkpoint(tmp_path / "checkpoint", toy_config(), toy_heads)
    mask = torch.ones_like(IDS)
    with torch.no_grad():
        assert torch.equal(loaded(IDS, mask), model(IDS, mask))
    plain = new_classifier(toy_config(), toy_heads)
    sizes = []
    for number, each in enumerate((model, plain)):
        export_onnx(each, tmp_path / f"{number}.onnx")
        graph = onnx.load(str(tmp_path / f"{number}.onnx")).graph
        assert not any("lora" in node.name.lower() for node in graph.node)
        sizes.append((len(graph.node), len(graph.initializer)))
    assert sizes[0] == sizes[1]


def test_a_resumed_run_is_the_undisturbed_one(
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> None:
    config = toy_config(lora=LoraConfig(dropout=0.1), dropout=0.2, patience_epochs=9)
    states: list[dict[str, object]] = []
    models = []
    for resume in (None, 0):
        model = new_classifier(config, toy_heads)
        fit(
            model,
            train=[example for example in toy_examples if example.split == "train"],
            valid=[example for example in toy_examples if example.split == "valid"],
            heads=toy_heads, config=config, recipe=Recipe(2, 1e-2, "a test", 8, 1e-2),
            resume=None if resume is None else states[resume],
            on_epoch=lambda _, state, __: states.append(copy.deepcopy(state)),
        )  # fmt: skip
        models.append(model.state_dict())
    assert any("lora_A" in name for name in states[0]["model"])  # type: ignore[attr-defined]
    for name, weight in models[0].items():
        assert torch.equal(weight, models[1][name]), name


def test_other_families_have_attention_too() -> None:
    config = DistilBertConfig(vocab_size=30, dim=8, n_layers=2, n_heads=2, hidden_dim=8)
    encoder = DistilBertModel(config)
    with low_rank_updates(encoder, LoraConfig(rank=2)):
        names = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert len(names) == 2 * 2 * 4  # two matrices of four projections in two layers


def test_nothing_to_update_is_a_config_error(tiny_model: Classifier) -> None:
    tiny_model.encoder.requires_grad_(False)
    with (
        pytest.raises(ConfigError, match=r"train\.lora\.target 'attention': the backbone has no"),
        low_rank_updates(tiny_model.encoder, LoraConfig()),
    ):
        pass
