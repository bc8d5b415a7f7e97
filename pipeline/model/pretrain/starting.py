"""The model that pretraining starts from: the backbone with its head, or random weights."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    BertConfig,
)

from pipeline.model.backbone import locate, with_dropout
from pipeline.model.batches import batches, has_segments
from pipeline.model.pretrain.loop import parameter_groups
from pipeline.model.pretrain.objective import collate
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from pipeline.model.pretrain.loop import Feed
    from pipeline.model.pretrain.masking import Example
    from pipeline.model.pretrain.objective import Objective
    from pipeline.model.pretrain.pieces import PieceTokenizer
    from schemas.pretrain import PretrainConfig

log = logging.getLogger(__name__)

_MIN_POSITIONS = 512


@dataclass(frozen=True)
class Start:
    """A model, and the parameters of its head that the backbone came without."""

    model: PreTrainedModel
    missing: tuple[nn.Parameter, ...] = ()


def load_start(backbone: str, config: PretrainConfig) -> Start:
    """The model of `config.objective` with the weights at `backbone`; a new head is seeded.

    Raises:
        ConfigError: there is no such model of the backbone's kind.
        ArtifactError: the weights cannot be loaded.
    """
    place = locate(backbone)
    torch.manual_seed(config.seed)
    try:
        settings = with_dropout(AutoConfig.from_pretrained(place), config.dropout)
        kind = _auto_class(settings, config)
        model, info = kind.from_pretrained(place, config=settings, output_loading_info=True)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ArtifactError(f"train.backbone {backbone!r} cannot be loaded: {error}") from error
    if config.objective == "simcse":
        return Start(model)
    return Start(model, _missing(model, info["missing_keys"]))


def random_start(config: PretrainConfig, tokenizer: PieceTokenizer, *, max_tokens: int) -> Start:
    """A BERT of `pretrain.from_scratch` with random weights, the same for the same seed."""
    scratch = config.from_scratch
    if scratch is None:
        raise ConfigError("pretrain.from_scratch is not set; a random model needs its sizes")
    torch.manual_seed(config.seed)
    settings = BertConfig(
        vocab_size=tokenizer.vocabulary_size,
        hidden_size=scratch.hidden_size,
        num_hidden_layers=scratch.layers,
        num_attention_heads=scratch.heads,
        intermediate_size=4 * scratch.hidden_size,
        max_position_embeddings=max(_MIN_POSITIONS, max_tokens),
        pad_token_id=tokenizer.pad_id,
    )
    settings = with_dropout(settings, config.dropout)
    return Start(_auto_class(settings, config).from_config(settings))


def reload(folder: str, config: PretrainConfig) -> PreTrainedModel:
    """The model that a start's folder holds, complete."""
    kind = _auto_class(AutoConfig.from_pretrained(folder), config)
    model: PreTrainedModel = kind.from_pretrained(folder)
    return model


def fit_head(
    objective: Objective,
    missing: tuple[nn.Parameter, ...],
    feed: Feed,
    config: PretrainConfig,
    *,
    pad_id: int,
) -> int:
    """Fits the missing parameters alone; answers after how many steps.

    Without it, "before" would say how good a random head is, and its gradients would spoil the
    encoder in the first steps.
    """
    learned = [(each, each.requires_grad) for each in objective.parameters()]
    for parameter, _ in learned:
        parameter.requires_grad = any(parameter is each for each in missing)
    optimizer = torch.optim.AdamW(
        parameter_groups(objective, config.weight_decay), lr=config.head_learning_rate
    )
    objective.eval()  # the encoder answers as it will be asked
    log.info("the backbone came without its head: fitting one, %d steps", config.head_steps)
    steps, loss = 0, 0.0
    for numbers in islice(_endless(feed, config), config.head_steps):
        examples = [feed.example(number, epoch=steps) for number in numbers]
        optimizer.zero_grad(set_to_none=True)
        loss = _add_gradients(objective, examples, config, pad_id=pad_id)
        optimizer.step()
        steps += 1
    for parameter, requires_grad in learned:
        parameter.requires_grad = requires_grad
    log.info("the head is fitted, the encoder untouched; loss %.3f", loss)
    return steps


def _add_gradients(
    objective: Objective, examples: Sequence[Example], config: PretrainConfig, *, pad_id: int
) -> float:
    """Adds a batch's gradients, `micro_batch_size` at once; answers the loss of what is asked."""
    weights, segments = objective.weights(examples), has_segments(objective.model)
    size, loss = config.micro_batch_size or len(examples), 0.0
    for start in range(0, len(examples), size):
        tensors = collate(examples[start : start + size], pad_id=pad_id, segments=segments)
        losses: Tensor = objective(**tensors) / weights
        torch.autograd.backward(losses.sum())
        loss += float(losses[0].detach())
    return loss


def _endless(feed: Feed, config: PretrainConfig) -> Iterator[list[int]]:
    seed = config.seed
    while True:
        yield from batches(feed.lengths, batch_size=config.batch_size, seed=seed)
        seed += 1


def _auto_class(settings: Any, config: PretrainConfig) -> Any:
    """The auto class whose model fits the objective.

    Raises:
        ConfigError: there is none for this kind of backbone.
    """
    if config.objective == "simcse":
        return AutoModel
    kind, name = AutoModelForMaskedLM, settings.model_type
    if type(settings) not in kind._model_mapping:
        raise ConfigError(
            f"a backbone of kind {name!r} has no masked-language head; choose another "
            f"train.backbone or pretrain.objective=simcse"
        )
    if not config.next_sentence:
        return kind
    pairs = AutoModelForPreTraining
    found = pairs._model_mapping.get(type(settings), None)
    takes = inspect.signature(found.forward).parameters if found else {}
    if not {"next_sentence_label", "attention_mask", "token_type_ids"} <= set(takes):
        raise ConfigError(
            f"pretrain.next_sentence is BERT's own question, got a backbone of kind {name!r}; "
            f"set it to false"
        )
    return pairs


def _missing(model: PreTrainedModel, names: Any) -> tuple[nn.Parameter, ...]:
    """Parameters that were not in the file; the output layer is, where it is tied to the input."""
    known = dict(model.named_parameters(remove_duplicate=False))
    table = model.get_input_embeddings().weight
    found = [known[name] for name in sorted(names) if name in known]
    distinct = {id(parameter): parameter for parameter in found if parameter is not table}
    return tuple(distinct.values())
