"""Cloze heads answer exactly as the backbone's masked-language head, in torch and in ONNX."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, GPT2Config, GPT2Model

from pipeline.batch import window_inputs
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import head_slices
from pipeline.model.checkpoint import CLOZE_FILE, load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.export import export_onnx
from pipeline.model.gate import TorchEncoder
from pipeline.model.losses import HeadLosses
from pipeline.model.masked_head import find_transform, load_masked_head
from pipeline.model.recipe import Recipe, parameter_groups
from pipeline.prompt import prompted
from pipeline.window import make_windows
from schemas.errors import ArtifactError, ConfigError
from schemas.task import HeadConfig, TrainConfig, WindowConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.network import Classifier
    from pipeline.window import Window

    Backbone = Callable[[str], Path]

families = pytest.mark.parametrize(
    "family", ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert", "longformer"]
)
PROMPT = "it was [MASK]."
TEXTS = [
    ("help", "the app is slow and the service is bad"),
    ("", "broken"),
    ("invoice", "the parcel is late again " * 12),
]
WORDS = {
    "mood": (("bad", "slow"), ("good", "great", "thanks"), ("late",)),
    "queue": (("card",), ("parcel", "order")),
}


def cloze_head(name: str, **changes: Any) -> HeadConfig:
    words = {f"l{place}": list(of_label) for place, of_label in enumerate(WORDS[name])}
    cloze = {"prompt": PROMPT, "words": words}
    return HeadConfig.model_validate(
        {"column": name, "labels": list(words), "cloze": cloze} | changes
    )


# Two cloze heads, and linear ones before, between and behind them.
HEADS = head_slices(
    {
        "urgent": HeadConfig(column="u", labels=("no", "yes")),
        "mood": cloze_head("mood"),
        "tags": HeadConfig(kind="multi", column="t", labels=("x", "y")),
        "queue": cloze_head("queue"),
        "mark": HeadConfig(column="m", labels=("a", "b")),
    }
)
ONLY_CLOZE = head_slices({"mood": cloze_head("mood"), "queue": cloze_head("queue")})
CLOZE_COLUMNS = [2, 3, 4, 7, 8]
LINEAR_COLUMNS = [0, 1, 5, 6, 9, 10]


@pytest.fixture(scope="module")
def backbone(
    family_config: Callable[..., Any], tiny_tokenizer_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Backbone:  # fmt: skip
    """Makes a folder with a random masked-language model of a family, as the hub has them."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            torch.manual_seed(5)
            other = {"hidden_act": "relu"} if family == "bert" else {}
            config = family_config(family, vocab_size=190, pad_token_id=0, **other)
            model = AutoModelForMaskedLM.from_config(config)
            with torch.no_grad():  # what begins as ones and zeros hides mistakes
                for parameter in model.parameters():
                    parameter.add_(0.2 * torch.randn_like(parameter))
            made[family] = saved(model, tmp_path_factory.mktemp(family), tiny_tokenizer_path)
        return made[family]

    return make


def saved(model: Any, folder: Path, tokenizer: Path) -> Path:
    model.save_pretrained(folder)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def windows(tiny_tokenizer_path: Path) -> list[Window]:
    """Of pairs of texts, short and long, with the prompt; of different lengths."""
    reader = prompted(BackboneTokenizer(tiny_tokenizer_path), PROMPT)
    config = WindowConfig(max_tokens=24, stride_tokens=4)
    pairs = [
        window
        for texts in TEXTS
        for window in make_windows(
            reader.tokenize(list(texts)), texts, template=reader.pair, config=config
        ).windows
    ]
    single = make_windows(
        reader.tokenize(["good service"]), ["good service"], template=reader.single, config=config
    )
    return [*pairs, *single.windows]


def classifier(folder: Path, heads: tuple[HeadSlice, ...] = HEADS, **changes: Any) -> Classifier:
    config = TrainConfig.model_validate({"backbone": f"path:{folder}", "dropout": 0.0} | changes)
    return new_classifier(config, heads).eval()


def masked_logits(folder: Path, windows: list[Window], mask_id: int) -> np.ndarray[Any, Any]:
    """What transformers' own model says at the mask `(W, V)`, each window alone."""
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    found = []
    for window in windows:
        inputs = {
            "input_ids": torch.tensor([window.input_ids]),
            "attention_mask": torch.ones(1, window.n_tokens, dtype=torch.int64),
        }
        if model.config.model_type == "bert":
            inputs["token_type_ids"] = torch.tensor([window.type_ids])
        if model.config.model_type == "longformer":  # the first token and the gap see all others
            sees_all = [at == 0 or of == mask_id for at, of in enumerate(window.input_ids)]
            inputs["global_attention_mask"] = torch.tensor([sees_all], dtype=torch.int64)
        with torch.no_grad():
            logits = model(**inputs).logits
        found.append(logits[0, window.input_ids.index(mask_id)].numpy())
    return np.stack(found)


@families
def test_untrained_answers_are_those_of_the_masked_language_model(
    family: str, backbone: Backbone, windows: list[Window]
) -> None:
    folder = backbone(family)
    tokenizer = BackboneTokenizer(folder / "tokenizer.json")
    logits = TorchEncoder(classifier(folder)).logits(windows)
    by_word = masked_logits(folder, windows, tokenizer.mask_id or 0)
    to_id = tokenizer._tokenizer.token_to_id
    expected = [
        by_word[:, [to_id(word) for word in words]].mean(axis=1)
        for name in ("mood", "queue")
        for words in WORDS[name]
    ]
    assert logits.shape == (len(windows), 11)
    np.testing.assert_allclose(logits[:, CLOZE_COLUMNS], np.stack(expected, axis=1), atol=2e-5)
    assert np.ptp(logits[:, CLOZE_COLUMNS], axis=0).min() > 0.05  # texts make a difference


@families
def test_the_exported_graph_agrees_over_pad_patterns(
    family: str, backbone: Backbone, windows: list[Window], tmp_path: Path
) -> None:
    model = classifier(backbone(family), window_pooling="attention")
    export_onnx(model, tmp_path / "model.onnx")
    exported, reference = OnnxEncoder(tmp_path / "model.onnx"), TorchEncoder(model)
    np.testing.assert_allclose(exported.logits(windows), reference.logits(windows), atol=1e-4)
    for multiple in (1, 8):
        inputs = window_inputs(windows, pad_id=0, multiple=multiple)
        together = exported.run(inputs)
        assert together.shape == (len(windows), 12)
        np.testing.assert_allclose(together, reference.logits(windows), atol=1e-4)
    cut = window_inputs([windows[0]], pad_id=0)  # without a mask, as a host is measured with
    cut = {name: array[:, :3] for name, array in cut.items()}
    np.testing.assert_allclose(exported.run(cut), reference.run(cut), atol=1e-4)
    inputs["attention_mask"][1] = 0
    np.testing.assert_allclose(exported.run(inputs), reference.run(inputs), atol=1e-4)


def test_the_vocabulary_does_not_ship(backbone: Backbone, tmp_path: Path) -> None:
    """Of the projection to 190 words five rows are left, one for each label."""
    model = classifier(backbone("bert"), ONLY_CLOZE)
    assert model.cloze is not None
    assert model.cloze.words.weight.shape == (5, 16)
    export_onnx(model, tmp_path / "model.onnx")
    import onnx

    graph = onnx.load(str(tmp_path / "model.onnx")).graph
    shapes = [tuple(tensor.dims) for tensor in graph.initializer]
    assert shapes.count((190, 16)) == 1  # the embeddings
    assert (5, 16) in shapes
    assert not any("heads" in tensor.name for tensor in graph.initializer)


def test_linear_heads_beside_are_what_they_were(backbone: Backbone, windows: list[Window]) -> None:
    folder = backbone("bert")
    plain = head_slices(
        {head.name: head.config.model_copy(update={"cloze": None}) for head in HEADS}
    )
    ours = TorchEncoder(classifier(folder)).logits(windows)
    linear = TorchEncoder(classifier(folder, plain)).logits(windows)
    np.testing.assert_array_equal(ours[:, LINEAR_COLUMNS], linear[:, LINEAR_COLUMNS])
    assert np.abs(ours[:, CLOZE_COLUMNS] - linear[:, CLOZE_COLUMNS]).min() > 1e-4


@families
@pytest.mark.parametrize("heads", [HEADS, ONLY_CLOZE], ids=["mixed", "cloze"])
def test_a_checkpoint_gives_the_same_logits(
    family: str, heads: tuple[HeadSlice, ...], backbone: Backbone, windows: list[Window],
    tmp_path: Path,
) -> None:  # fmt: skip
    folder = backbone(family)
    model = classifier(folder, heads)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    save_checkpoint(model, tmp_path / "c", tokenizer=folder / "tokenizer.json")
    config = TrainConfig(backbone=f"path:{folder}", dropout=0.3)
    loaded = load_checkpoint(tmp_path / "c", config, heads)
    assert not loaded.training
    weights = loaded.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    one, other = (TorchEncoder(each).logits(windows) for each in (model, loaded))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_checkpoint_without_its_cloze_heads_is_damaged(
    backbone: Backbone, tmp_path: Path
) -> None:
    folder = backbone("bert")
    save_checkpoint(classifier(folder), tmp_path, tokenizer=folder / "tokenizer.json")
    (tmp_path / CLOZE_FILE).unlink()
    with pytest.raises(ArtifactError, match="heads are damaged or do not fit the task"):
        load_checkpoint(tmp_path, TrainConfig(backbone=f"path:{folder}"), HEADS)


@families
def test_training_lowers_the_loss_and_moves_the_head_from_pretraining(
    family: str, backbone: Backbone, windows: list[Window]
) -> None:
    model = classifier(backbone(family)).train()
    inputs = {name: torch.from_numpy(a) for name, a in window_inputs(windows).items()}
    if family != "bert":
        del inputs["token_type_ids"]
    count = len(windows)
    targets = {
        "urgent": torch.full((count,), -100), "tags": torch.full((count, 2), float("nan")),
        "mark": torch.full((count,), -100),
        "mood": torch.arange(count) % 3, "queue": torch.arange(count) % 2,
    }  # fmt: skip
    losses = HeadLosses(HEADS, TrainConfig(), {name: t.numpy() for name, t in targets.items()})
    recipe = Recipe(1, 1e-3, "a test", head_learning_rate=0.5)
    groups = parameter_groups(model, TrainConfig(weight_decay=0.0), recipe)
    optimizer = torch.optim.AdamW(groups)
    seen = []
    for _ in range(8):
        loss = losses(model(**inputs), targets)
        seen.append(loss.item())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert seen[-1] < 0.95 * seen[0]
    assert model.cloze is not None
    assert all(p.grad is not None and p.grad.any() for p in model.cloze.parameters())
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in model.cloze.parameters()} == {1e-3}
    assert rates[id(model.heads.weight)] == 0.5


def test_what_nobody_reads_is_not_trained(backbone: Backbone) -> None:
    folder = backbone("bert")
    assert all(weight.requires_grad for weight in classifier(folder).parameters())
    alone = classifier(folder, ONLY_CLOZE)
    assert {name for name, weight in alone.named_parameters() if not weight.requires_grad} == {
        "heads.weight", "heads.bias",
    }  # fmt: skip
    weighed = classifier(folder, ONLY_CLOZE, window_pooling="attention")
    assert weighed.heads.weight.requires_grad
    frozen = classifier(folder, ONLY_CLOZE, frozen_layers=2)
    assert frozen.cloze is not None
    assert all(weight.requires_grad for weight in frozen.cloze.parameters())
    assert not any(weight.requires_grad for weight in frozen.encoder.parameters())


def test_a_backbone_without_the_head_says_where_to_get_one(tiny_backbone: Path) -> None:
    with pytest.raises(ConfigError, match=r"came without its masked-language head .*pretrain"):
        classifier(tiny_backbone)


def test_a_kind_of_model_without_such_a_head_is_refused(
    tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    config = GPT2Config(vocab_size=190, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    folder = saved(GPT2Model(config), tmp_path, tiny_tokenizer_path)
    with pytest.raises(ConfigError, match="a backbone of kind 'gpt2' has no masked-language head"):
        classifier(folder)


def test_a_head_of_another_form_is_refused(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that do not add up to what the model says, and more parts than we know."""
    monkeypatch.setattr(
        "pipeline.model.masked_head.find_transform",
        lambda model: find_transform(model)._replace(activation=nn.Tanh()),
    )
    with pytest.raises(ConfigError, match="has a form that is not known here"):
        load_masked_head(f"path:{backbone('bert')}")
    model = AutoModelForMaskedLM.from_pretrained(backbone("bert"))
    model.cls.another = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="head of a backbone of kind 'bert' has a form"):
        find_transform(model)


def test_a_word_of_several_pieces_is_told_before_training(backbone: Backbone) -> None:
    words = {"l0": ["refund"], "l1": ["splendid"]}
    heads = head_slices(
        {"mood": HeadConfig.model_validate(
            {"column": "m", "labels": ["l0", "l1"], "cloze": {"prompt": PROMPT, "words": words}}
        )}
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"heads\.mood\.cloze\.words: 'splendid' is cut into"):
        classifier(backbone("bert"), heads)
