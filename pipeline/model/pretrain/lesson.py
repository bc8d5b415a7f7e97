"""Model, sequences and measure put together as the objective wants them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pipeline.model.pretrain.masking import IGNORED, Example, Masker
from pipeline.model.pretrain.measuring import masked_metrics, twin_metrics
from pipeline.model.pretrain.objective import MaskedLanguage, SimCse
from pipeline.model.pretrain.perplexity import questions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transformers import PreTrainedModel

    from pipeline.model.pretrain.loop import Feed
    from pipeline.model.pretrain.objective import Objective
    from pipeline.model.pretrain.packing import PieceSequence
    from pipeline.model.pretrain.pieces import PieceTokenizer
    from schemas.task import TaskConfig


@dataclass(frozen=True)
class Lesson:
    """What the loop takes: an objective, examples to learn from, and a held-out measure."""

    objective: Objective
    feed: Feed
    measure: Callable[[], dict[str, float]]


class MaskedFeed:
    """Sequences with pieces hidden, others in each epoch."""

    def __init__(self, sequences: Sequence[PieceSequence], masker: Masker) -> None:
        self._sequences = sequences
        self._masker = masker
        self.lengths = [len(sequence) for sequence in sequences]

    def example(self, number: int, *, epoch: int) -> Example:
        """One sequence as it is seen in an epoch."""
        return self._masker.mask(self._sequences[number], epoch=epoch, number=number)


class PlainFeed:
    """Sequences as they are, in every epoch."""

    def __init__(self, sequences: Sequence[PieceSequence]) -> None:
        self._sequences = sequences
        self.lengths = [len(sequence) for sequence in sequences]

    def example(self, number: int, *, epoch: int) -> Example:
        """One sequence; the epoch makes no difference."""
        del epoch
        return plain_example(self._sequences[number])


def plain_example(sequence: PieceSequence) -> Example:
    """A sequence of which nothing is asked."""
    return Example(
        ids=np.asarray(sequence.ids, dtype=np.int64),
        types=np.asarray(sequence.types, dtype=np.int64),
        labels=np.full(len(sequence), IGNORED, dtype=np.int64),
    )


def make_lesson(
    model: PreTrainedModel,
    task: TaskConfig,
    tokenizer: PieceTokenizer,
    *,
    train: Sequence[PieceSequence],
    valid: Sequence[PieceSequence],
) -> Lesson:
    """The lesson of `pretrain.objective`.

    Raises:
        ConfigError: the vocabulary has no mask token.
        DataContractError: there is nothing to measure on.
    """
    config, pad_id = task.pretrain, tokenizer.pad_id
    size = config.micro_batch_size or config.batch_size
    if config.objective == "simcse":
        twins = SimCse(model, pooling=task.train.pooling, temperature=config.temperature)
        measure = partial(
            twin_metrics, twins, [plain_example(each) for each in valid],
            pad_id=pad_id, batch_size=size, seed=config.seed,
        )  # fmt: skip
        return Lesson(twins, PlainFeed(train), measure)
    masker = Masker(config, tokenizer)
    masked = MaskedLanguage(model)
    asked = questions(valid, masker, fraction=config.mask_fraction, seed=config.seed)
    return Lesson(
        masked,
        MaskedFeed(train, masker),
        partial(masked_metrics, masked, asked, pad_id=pad_id, batch_size=size),
    )
