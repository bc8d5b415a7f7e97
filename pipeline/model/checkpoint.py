"""A fine-tuned model on disk: the encoder as `path:` backbones have it, and the heads beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pipeline.model.backbone import load_encoder
from pipeline.model.network import Classifier
from pipeline.model.recipe import freeze_lowest
from schemas.bundle import TOKENIZER_FILE
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from schemas.task import TrainConfig

HEADS_FILE = "heads.safetensors"


def new_classifier(config: TrainConfig, heads: tuple[HeadSlice, ...]) -> Classifier:
    """A classifier with pretrained encoder and fresh heads, the same for the same seed."""
    torch.manual_seed(config.seed)
    model = _classifier(config.backbone, config, heads)
    freeze_lowest(model, config.frozen_layers)
    return model


def save_checkpoint(model: Classifier, folder: Path, *, tokenizer: Path) -> None:
    """Writes encoder, heads and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    model.encoder.save_pretrained(folder)  # type: ignore[operator]
    save_file(model.heads.state_dict(), folder / HEADS_FILE)
    (folder / TOKENIZER_FILE).write_bytes(tokenizer.read_bytes())


def load_checkpoint(folder: Path, config: TrainConfig, heads: tuple[HeadSlice, ...]) -> Classifier:
    """The model that `save_checkpoint` wrote, in evaluation mode.

    Raises:
        ArtifactError: it is missing, or has other heads than asked for.
    """
    if not (folder / HEADS_FILE).is_file():
        raise ArtifactError(f"{folder} holds no checkpoint; run the step `finetune` first")
    model = _classifier(f"path:{folder}", config, heads)
    try:
        model.heads.load_state_dict(load_file(folder / HEADS_FILE))
    except (RuntimeError, SafetensorError) as error:
        raise ArtifactError(
            f"{folder}: heads are damaged or do not fit the task: {error}; "
            f"run the step `finetune` under another --run"
        ) from error
    return model.eval()


def _classifier(backbone: str, config: TrainConfig, heads: tuple[HeadSlice, ...]) -> Classifier:
    return Classifier(
        load_encoder(backbone, dropout=config.dropout),
        n_logits=heads[-1].columns.stop,
        pooling=config.pooling,
        dropout=config.dropout,
        window_pooling=config.window_pooling,
    )
