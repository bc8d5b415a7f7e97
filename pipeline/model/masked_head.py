"""A backbone's masked-language head: where it is, and what it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM

from pipeline.model.backbone import locate
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SAME = 1e-3  # logits of one head computed in two ways differ by rounding alone


class Transform(NamedTuple):
    """What a masked-language head does to a hidden state before the vocabulary projection."""

    dense: nn.Linear
    activation: nn.Module
    norm: nn.LayerNorm


class MaskedHead(NamedTuple):
    """The transformation, and the projection to all words of the vocabulary."""

    transform: Transform
    projection: nn.Linear


def load_masked_head(backbone: str) -> MaskedHead:
    """The head that came with the weights at `backbone`, shown to answer as the whole model does.

    Raises:
        ConfigError: the backbone has none, or one of another form.
        ArtifactError: the backbone cannot be loaded.
    """
    place = locate(backbone)
    try:
        _check_kind(AutoConfig.from_pretrained(place))
        model, info = AutoModelForMaskedLM.from_pretrained(place, output_loading_info=True)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ArtifactError(f"train.backbone {backbone!r} cannot be loaded: {error}") from error
    if missing := _missing(model, info["missing_keys"]):
        raise ConfigError(
            f"cloze: train.backbone {backbone!r} came without its masked-language head (no "
            f"{missing[0]!r}); run `nightmill pretrain` with pretrain.objective=mlm and take the "
            f"backbone that it makes, or choose one that has the head"
        )
    head = MaskedHead(find_transform(model.float()), model.get_output_embeddings())
    _check_answers(model.eval(), head)
    return head


def empty_masked_head(place: str) -> MaskedHead:
    """A head of the form that belongs to the encoder in a folder; its weights are not filled in.

    Raises:
        ConfigError: encoders of its kind have none, or one of another form.
    """
    config = AutoConfig.from_pretrained(place)
    _check_kind(config)
    with torch.device("meta"):  # no memory for encoder and vocabulary
        model = AutoModelForMaskedLM.from_config(config)
    return MaskedHead(find_transform(model), model.get_output_embeddings())


def find_transform(model: PreTrainedModel) -> Transform:
    """Linear layer, activation and normalisation of a masked-language model's head.

    All families have these three, under names of their own; where the activation is no module
    (RoBERTa, MPNet) it is GELU.

    Raises:
        ConfigError: the head consists of other parts.
    """
    known = {id(module) for module in model.base_model.modules()}
    known.add(id(model.get_output_embeddings()))
    outside = [
        module
        for module in model.modules()
        if id(module) not in known and next(module.children(), None) is None
    ]
    dense = [module for module in outside if isinstance(module, nn.Linear)]
    norms = [module for module in outside if isinstance(module, nn.LayerNorm)]
    activations = [module for module in outside if _is_activation(module)]
    if (len(dense), len(norms)) != (1, 1) or len(activations) > 1:
        raise _unknown_form(model)
    return Transform(dense[0], activations[0] if activations else nn.GELU(), norms[0])


def _is_activation(module: nn.Module) -> bool:
    is_other = isinstance(module, nn.Dropout | nn.modules.loss._Loss)
    return not is_other and next(module.parameters(), None) is None


def _check_kind(config: Any) -> None:
    if type(config) not in AutoModelForMaskedLM._model_mapping:
        raise ConfigError(
            f"cloze: a backbone of kind {config.model_type!r} has no masked-language head; "
            f"choose another train.backbone, or leave heads.*.cloze out"
        )


def _missing(model: PreTrainedModel, names: Any) -> list[str]:
    """Names of the head's parameters that were not in the file; tied ones are the encoder's."""
    known = dict(model.named_parameters(remove_duplicate=False))
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    return [name for name in sorted(names) if name in known and id(known[name]) not in encoder]


@torch.no_grad()
def _check_answers(model: PreTrainedModel, head: MaskedHead) -> None:
    """Makes sure that the parts in this order are what the model does.

    Raises:
        ConfigError: they are not.
    """
    ids = torch.tensor([[2, 3, 4]])
    dense, activation, norm = head.transform
    hidden = model.base_model(input_ids=ids).last_hidden_state
    logits = head.projection(norm(activation(dense(hidden))))
    if (logits - model(input_ids=ids).logits).abs().max() > _SAME:
        raise _unknown_form(model)


def _unknown_form(model: PreTrainedModel) -> ConfigError:
    return ConfigError(
        f"cloze: the masked-language head of a backbone of kind {model.config.model_type!r} has "
        f"a form that is not known here; choose another train.backbone, such as a BERT"
    )
