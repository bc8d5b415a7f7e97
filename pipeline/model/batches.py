"""What training reads at once: items, batches of items of like length, and their tensors."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import torch

from pipeline.batch import window_inputs
from pipeline.model.window_pooling import pool_windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from transformers import PreTrainedModel

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.window import Window
    from schemas.task import TrainConfig, WindowPooling

PAD_MULTIPLE = 8
_BATCHES_PER_GROUP = 50  # how many batches are sorted by length together


class Item(NamedTuple):
    """What counts once in the loss: windows that are answered together, of the record `row`."""

    windows: tuple[Window, ...]
    row: int

    @property
    def n_tokens(self) -> int:
        """Tokens of the longest window, which decides how much is padded."""
        return max(window.n_tokens for window in self.windows)


def training_items(examples: Sequence[Example], config: TrainConfig, *, epoch: int) -> list[Item]:
    """The items of an epoch, as many in each.

    Where windows are pooled by attention a record is one item, for the weight of a window only
    means something beside the others; of more than `max_windows_per_record` windows each epoch
    draws others. Else each of the first windows is an item of its own.
    """
    limit = config.max_windows_per_record
    if config.window_pooling == "attention":
        return [
            Item(_drawn(example.windows, limit, f"{config.seed}:{epoch}:{row}"), row)
            for row, example in enumerate(examples)
        ]
    limit = 1 if config.window_pooling == "first" else limit
    return [
        Item((window,), row)
        for row, example in enumerate(examples)
        for window in example.windows[:limit]
    ]


def _drawn(windows: tuple[Window, ...], limit: int, seed: str) -> tuple[Window, ...]:
    if len(windows) <= limit:
        return windows
    chooser = random.Random(seed)  # noqa: S311 - a choice of windows, not a secret
    return tuple(windows[place] for place in sorted(chooser.sample(range(len(windows)), limit)))


def batches(lengths: Sequence[int], *, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Row numbers by batch: shuffled, then grouped by length so that little is padded."""
    chooser = random.Random(seed)  # noqa: S311 - an order of rows, not a secret
    rows = list(range(len(lengths)))
    chooser.shuffle(rows)
    group = batch_size * _BATCHES_PER_GROUP
    made = []
    for start in range(0, len(rows), group):
        chunk = sorted(rows[start : start + group], key=lambda row: lengths[row])
        made += [chunk[at : at + batch_size] for at in range(0, len(chunk), batch_size)]
    chooser.shuffle(made)
    yield from made


def micro_batches(
    batch: Sequence[Item], *, rank: int, world: int, parts: int
) -> list[Sequence[Item]]:
    """One rank's share of a global batch in at most `parts` parts, some of them maybe empty.

    All ranks get as many parts, since each pass is one that they make together.
    """
    share, longest = batch[rank::world], -(-len(batch) // world)
    size = -(-longest // parts)
    return [share[start : start + size] for start in range(0, longest, size)]


def tensor_inputs(
    model: Classifier, windows: Sequence[Window], *, pad_id: int
) -> dict[str, Tensor]:
    """The tensors `(B, T)` that `model` takes for `windows`, on the model's device."""
    arrays = window_inputs(windows, pad_id=pad_id, multiple=PAD_MULTIPLE)
    if not takes_segments(model):
        del arrays["token_type_ids"]
    device = next(model.parameters()).device
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def pool_items(logits: Tensor, items: Sequence[Item], *, how: WindowPooling) -> Tensor:
    """Logits `(B, L)` of items from those of their windows, read one after the other.

    But for `attention` each item is one window.
    """
    if how != "attention":
        return logits
    rows = [place for place, item in enumerate(items) for _ in item.windows]
    n_tokens = [window.n_tokens for item in items for window in item.windows]
    return pool_windows(
        logits,
        torch.tensor(rows, device=logits.device),
        torch.tensor(n_tokens, device=logits.device),
        n_records=len(items),
        how=how,
    )


def padded_length(windows: Sequence[Window]) -> int:
    """Tokens, padding included, of each row that `tensor_inputs` makes of `windows`."""
    return -(-max(window.n_tokens for window in windows) // PAD_MULTIPLE) * PAD_MULTIPLE


def takes_segments(model: Classifier) -> bool:
    """Whether the encoder of `model` has more than one segment embedding."""
    return has_segments(model.encoder)


def has_segments(encoder: PreTrainedModel) -> bool:
    """Whether an encoder has more than one segment embedding."""
    return int(getattr(encoder.config, "type_vocab_size", 0) or 0) > 1
