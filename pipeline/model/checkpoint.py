"""A fine-tuned model on disk: the encoder as `path:` backbones have it, all else beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pipeline.model.backbone import load_encoder
from pipeline.model.bottleneck import (
    ADAPTERS_FILE,
    adapter_weights,
    check_has_none,
    freeze_around_adapters,
    insert_adapters,
    load_adapters,
    weights_without_adapters,
)
from pipeline.model.cloze import empty_cloze, pretrained_cloze
from pipeline.model.network import Classifier
from pipeline.model.prune.cut import is_pruned
from pipeline.model.prune.stored import save_pruned
from pipeline.model.recipe import freeze_lowest
from schemas.bundle import TOKENIZER_FILE
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.cloze import ClozeHeads
    from schemas.task import TrainConfig

HEADS_FILE = "heads.safetensors"
CLOZE_FILE = "cloze.safetensors"


def new_classifier(config: TrainConfig, heads: tuple[HeadSlice, ...]) -> Classifier:
    """A classifier with pretrained encoder and fresh heads, the same for the same seed.

    Raises:
        ArtifactError, ConfigError: see `load_encoder`, `pretrained_cloze` and `insert_adapters`.
    """
    check_has_none(config.backbone)
    cloze = pretrained_cloze(config.backbone, heads)
    torch.manual_seed(config.seed)
    model = _classifier(config.backbone, config, heads, cloze=cloze)
    freeze_lowest(model, config.frozen_layers)
    freeze_around_adapters(model.encoder, config.adapter)
    return model


def save_checkpoint(model: Classifier, folder: Path, *, tokenizer: Path) -> None:
    """Writes encoder, heads, tokenizer and, where there are some, adapters into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = weights_without_adapters(model.encoder)
    if is_pruned(model.encoder):
        save_pruned(model.encoder, folder, weights=plain)
    else:
        model.encoder.save_pretrained(folder, state_dict=plain)
    save_file(model.heads.state_dict(), folder / HEADS_FILE)
    if adapters := adapter_weights(model.encoder):
        save_file(adapters, folder / ADAPTERS_FILE)
    if model.cloze is not None:
        save_file(model.cloze.state_dict(), folder / CLOZE_FILE)
    (folder / TOKENIZER_FILE).write_bytes(tokenizer.read_bytes())


def load_checkpoint(folder: Path, config: TrainConfig, heads: tuple[HeadSlice, ...]) -> Classifier:
    """The model that `save_checkpoint` wrote, in evaluation mode.

    Raises:
        ArtifactError: it is missing, or has other heads or adapters than asked for.
    """
    if not (folder / HEADS_FILE).is_file():
        raise ArtifactError(f"{folder} holds no checkpoint; run the step `finetune` first")
    model = _classifier(f"path:{folder}", config, heads, cloze=empty_cloze(folder, heads))
    try:
        model.heads.load_state_dict(load_file(folder / HEADS_FILE))
        if model.cloze is not None:
            model.cloze.load_state_dict(load_file(folder / CLOZE_FILE))
        load_adapters(model.encoder, folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ArtifactError(
            f"{folder}: heads are damaged or do not fit the task: {error}; "
            f"run the step `finetune` under another --run"
        ) from error
    return model.eval()


def _classifier(
    backbone: str,
    config: TrainConfig,
    heads: tuple[HeadSlice, ...],
    *,
    cloze: ClozeHeads | None,
) -> Classifier:
    model = Classifier(
        load_encoder(backbone, dropout=config.dropout),
        n_logits=heads[-1].columns.stop,
        pooling=config.pooling,
        dropout=config.dropout,
        window_pooling=config.window_pooling,
        cloze=cloze,
    )
    insert_adapters(model.encoder, config.adapter)  # after the heads, whose start is as without
    return model
