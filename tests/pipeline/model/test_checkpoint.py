from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pipeline.heads import head_slices
from pipeline.model.checkpoint import HEADS_FILE, load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.record_logits import record_logits
from schemas.errors import ArtifactError
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig


@pytest.fixture
def checkpoint(tiny_model: Classifier, tiny_tokenizer_path: Path, tmp_path: Path) -> Path:
    with torch.no_grad():  # so that the encoder is not the backbone's
        for parameter in tiny_model.encoder.parameters():
            parameter.mul_(1.1)
    save_checkpoint(tiny_model, tmp_path / "checkpoint", tokenizer=tiny_tokenizer_path)
    return tmp_path / "checkpoint"


def test_a_loaded_checkpoint_gives_the_same_logits(
    checkpoint: Path,
    tiny_model: Classifier,
    tiny_tokenizer_path: Path,
    toy_config: Callable[..., TrainConfig],
    toy_heads: tuple[HeadSlice, ...],
    toy_examples: list[Example],
) -> None:
    loaded = load_checkpoint(checkpoint, toy_config(dropout=0.3), toy_heads)
    assert not loaded.training
    before, after = (
        record_logits(model, toy_examples[:20], pad_id=0) for model in (tiny_model, loaded)
    )
    assert np.array_equal(before, after)
    assert (checkpoint / "tokenizer.json").read_bytes() == tiny_tokenizer_path.read_bytes()


def test_fresh_heads_follow_the_seed(
    toy_config: Callable[..., TrainConfig], toy_heads: tuple[HeadSlice, ...]
) -> None:
    one, two, other = (
        new_classifier(toy_config(seed=seed), toy_heads).heads.weight for seed in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert one.shape == (5, 32)


def test_other_heads_do_not_fit(checkpoint: Path, toy_config: Callable[..., TrainConfig]) -> None:
    heads = head_slices({"queue": HeadConfig(column="queue", labels=("a", "b"))})
    with pytest.raises(ArtifactError, match="heads are damaged or do not fit the task"):
        load_checkpoint(checkpoint, toy_config(), heads)


def test_no_checkpoint_names_the_step(
    tmp_path: Path, toy_config: Callable[..., TrainConfig], toy_heads: tuple[HeadSlice, ...]
) -> None:
    with pytest.raises(ArtifactError, match="holds no checkpoint; run the step `finetune` first"):
        load_checkpoint(tmp_path, toy_config(), toy_heads)


def test_cut_heads_are_an_artifact_error(
    checkpoint: Path, toy_config: Callable[..., TrainConfig], toy_heads: tuple[HeadSlice, ...]
) -> None:
    heads = checkpoint / HEADS_FILE
    heads.write_bytes(heads.read_bytes()[:-40])
    with pytest.raises(ArtifactError, match="heads are damaged or do not fit the task"):
        load_checkpoint(checkpoint, toy_config(), toy_heads)
