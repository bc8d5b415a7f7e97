"""A pruned encoder on disk: config, weights, and `pruned.json`, which says what was kept.

Transformers builds all layers alike and cannot make such an encoder. So it is built whole from its
config, cut once more, and filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pipeline.model.prune.cut import shape_of, take_shape
from schemas.errors import ArtifactError
from schemas.prune import PrunedShape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel

PRUNED_FILE = "pruned.json"
_WEIGHTS_FILE = "model.safetensors"


def save_pruned(encoder: PreTrainedModel, folder: Path, *, weights: Mapping[str, Tensor]) -> None:
    """Writes a cut encoder into `folder`; `weights` are those that one of its family has."""
    encoder.config.save_pretrained(folder)
    save_file(
        {name: weight.contiguous() for name, weight in weights.items()},
        folder / _WEIGHTS_FILE,
        metadata={"format": "pt"},
    )
    shape_of(encoder).write(folder / PRUNED_FILE)


def load_pruned(folder: Path, build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """The encoder that `save_pruned` wrote; `build` makes one with the weights still at random.

    Raises:
        ArtifactError: weights or shape are damaged, or are not each other's.
    """
    shape, encoder = PrunedShape.read(folder / PRUNED_FILE), build()
    try:
        take_shape(encoder, shape)
        encoder.load_state_dict(load_file(folder / _WEIGHTS_FILE))
    except (OSError, RuntimeError, IndexError, ValueError, SafetensorError) as error:
        raise ArtifactError(
            f"{folder}: the pruned encoder is damaged, or {PRUNED_FILE} is not of its weights: "
            f"{error}; prune the run again"
        ) from error
    return encoder
