"""Where an encoder's weights come from: `hf:NAME`, `path:DIR`, or `package:MODULE/DIR`."""

from __future__ import annotations

import importlib.util
import inspect
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModel, AutoTokenizer

from pipeline.model.prune.stored import PRUNED_FILE, load_pruned
from schemas.errors import ArtifactError, ConfigError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# As BERT and its relatives call it, and as DistilBERT and ModernBERT do.
_HIDDEN_DROPOUT = ("hidden_dropout_prob", "dropout")
# Dropping attention weights keeps PyTorch from its fused CPU kernel: 1.2 against 1.8 thousand
# tokens/s with the demo's encoder at 256 tokens.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")


def locate(backbone: str) -> str:
    """A folder, or for `hf:` a hub name, that `from_pretrained` understands.

    Raises:
        ConfigError: the scheme is none of ours.
        ArtifactError: the package or the folder does not exist.
    """
    scheme, _, rest = backbone.partition(":")
    if scheme == "hf" and rest:
        return rest
    if scheme == "path" and rest:
        folder = Path(rest)
    elif scheme == "package" and rest:
        folder = _package_folder(backbone, rest)
    else:
        raise ConfigError(
            f"train.backbone {backbone!r}: expected one of package:MODULE/DIR, path:DIR, hf:NAME"
        )
    if not (folder / "config.json").is_file():
        raise ArtifactError(f"train.backbone {backbone!r}: no config.json in {folder}")
    return str(folder)


def load_encoder(backbone: str, *, dropout: float) -> PreTrainedModel:
    """The pretrained encoder, without the pooler that classification by mean or [CLS] never uses.

    `dropout` is that of hidden states; attention weights are not dropped.

    Raises:
        ArtifactError: the weights cannot be loaded.
    """
    place = locate(backbone)
    try:
        config = with_dropout(AutoConfig.from_pretrained(place), dropout)
        model_class = AutoModel._model_mapping[type(config)]  # the class that from_pretrained picks
        takes_pooler = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
        options = {"add_pooling_layer": False} if takes_pooler else {}
        if Path(place, PRUNED_FILE).is_file():
            return load_pruned(Path(place), partial(model_class, config, **options))
        encoder: PreTrainedModel = AutoModel.from_pretrained(place, config=config, **options)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ArtifactError(f"train.backbone {backbone!r} cannot be loaded: {error}") from error
    return encoder


def with_dropout(config: PretrainedConfig, dropout: float) -> PretrainedConfig:
    """The same settings with `dropout` of hidden states, and none of attention weights."""
    for names, value in ((_HIDDEN_DROPOUT, dropout), (_ATTENTION_DROPOUT, 0.0)):
        for name in filter(partial(hasattr, config), names):
            setattr(config, name, value)
    return config


@torch.no_grad()
def check_length(encoder: PreTrainedModel, *, max_tokens: int, setting: str) -> None:
    """Makes sure that `encoder` has positions for `max_tokens`; leaves it in evaluation.

    Raises:
        ConfigError: it has fewer; `setting` is the key that asks for so many.
    """
    ids = torch.full((1, max_tokens), 2)  # any token but padding, which has no position in RoBERTa
    try:
        encoder.eval()(input_ids=ids, attention_mask=torch.ones_like(ids))
    except (IndexError, RuntimeError) as error:
        raise ConfigError(
            f"{setting} {max_tokens} is more than the backbone reads ({error}); lower it"
        ) from error


def save_tokenizer(backbone: str, path: Path) -> str:
    """Writes the backbone's fast tokenizer as one `tokenizer.json`; answers the file's digest.

    Raises:
        ArtifactError: the backbone has no fast tokenizer.
    """
    place = locate(backbone)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, use_fast=True)
        tokenizer.backend_tokenizer.save(str(path))
    except (OSError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"train.backbone {backbone!r} has no fast tokenizer that can be loaded: {error}"
        ) from error
    return digest_of_file(path)


def _package_folder(backbone: str, rest: str) -> Path:
    module, _, folder = rest.partition("/")
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise ArtifactError(
            f"train.backbone {backbone!r}: the package {module!r} is not installed; "
            f"for the demo's weights install the extra `demo`"
        )
    return Path(found.origin).parent / folder
