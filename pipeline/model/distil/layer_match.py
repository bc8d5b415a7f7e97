"""Layers of the student held against a teacher's: hidden states, and how tokens relate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pipeline.model.batches import tensor_inputs
from pipeline.model.distil.capture import Capture, check_layers
from pipeline.model.distil.epoch_mean import EpochMean
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.batches import Item
    from pipeline.model.extra_loss import WholeBatch
    from pipeline.model.network import Classifier
    from schemas.distil import DistilConfig

_Seen = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]


class LayerMatch(nn.Module):
    """`distil.hidden` and `distil.relations` as one `ExtraLoss`: both come from one teacher pass.

    The teacher reads the student's own windows, so both must have one vocabulary. `seed` is what
    projections between widths start from; the teacher is no part of the state.

    Raises:
        ConfigError: the teacher has no such layer, or its parts are not known.
    """

    def __init__(
        self, teacher: Classifier, config: DistilConfig, *, pad_id: int, seed: int
    ) -> None:
        super().__init__()
        self._config, self._pad_id, self._seed = config, pad_id, seed
        self._teacher = [teacher.eval().requires_grad_(False)]  # in a list it is no submodule
        relations, layer = config.relations, None
        if relations is not None:
            depth, layer = _depth(teacher), relations.teacher_layer
            layer = depth - 1 if layer is None else layer
            check_layers([layer], depth=depth, setting="distil.relations.teacher_layer")
        self._theirs = Capture(teacher.encoder, hidden=self._hidden, layer=layer, always=True)
        self._left: list[_Seen] = []
        self._mean = EpochMean()
        self.projections = nn.ModuleList()

    @property
    def _hidden(self) -> bool:
        return self._config.hidden is not None

    def attach(self, model: Classifier) -> None:
        """Hooks into the student's layers and makes the projections.

        Raises:
            ConfigError: its layers do not fit what is asked, or are not known.
        """
        (teacher,) = self._teacher
        layer = None if self._config.relations is None else _depth(model) - 1
        self._mine = Capture(model.encoder, hidden=self._hidden, layer=layer)
        mine, theirs = (each.encoder.config.hidden_size for each in (model, teacher))
        if self._config.hidden is not None:
            depths = _depth(model), _depth(teacher)
            self._pairs = self._config.hidden.pairs or _spread(*depths)
            for side, depth in enumerate(depths):
                wanted = [pair[side] for pair in self._pairs]
                check_layers(wanted, depth=depth + 1, setting="distil.hidden.pairs")
            if mine != theirs:
                self.projections = _projections(len(self._pairs), mine, theirs, seed=self._seed)
        if self._config.relations is not None:
            self._n_heads = _relation_heads(self._config, teacher, mine, theirs)
        device = next(model.parameters()).device
        self.to(device)
        teacher.to(device)

    def detach(self) -> None:
        """Takes the hooks away."""
        self._mine.close()
        self._theirs.close()

    def forward(self, items: Sequence[Item], logits: Tensor, *, batch: WholeBatch) -> Tensor:
        """See `ExtraLoss`. A record counts once, however many windows and tokens it has."""
        windows = [window for item in items for window in item.windows]
        mine = self._next_of(len(windows))
        inputs = tensor_inputs(self._teacher[0], windows, pad_id=self._pad_id)
        with torch.no_grad():
            self._teacher[0](**inputs)
        theirs = self._theirs.take()
        mask = inputs["attention_mask"].bool()
        shares = [1.0 / len(item.windows) for item in items for _ in item.windows]
        weights = torch.tensor(shares, device=logits.device) / batch.n_items
        loss = 0.0 * logits.sum()
        if self._config.hidden is not None:
            apart = self._hidden_apart(mine[0], theirs[0], mask)
            loss = loss + self._config.hidden.weight * (weights * apart).sum()
        if self._config.relations is not None:
            apart = relations_apart(mine[1], theirs[1], mask, n_heads=self._n_heads)
            loss = loss + self._config.relations.weight * (weights * apart).sum()
        self._mean.add(loss, step=batch.step)
        return loss

    def epoch_numbers(self) -> dict[str, float]:
        """The epoch's mean over steps, as `layer_loss`."""
        return {"layer_loss": self._mean.take()}

    def _next_of(self, n_windows: int) -> _Seen:
        """What the student computed of the items' windows: of R-Drop's two passes in turn."""
        hidden, parts = self._mine.take()
        if hidden or parts:
            count = len((hidden or parts)[0]) // n_windows
            self._left = [
                (
                    tuple(each.chunk(count)[number] for each in hidden),
                    tuple(each.chunk(count)[number] for each in parts),
                )
                for number in range(count)
            ]
        return self._left.pop(0)

    def _hidden_apart(
        self, mine: tuple[Tensor, ...], theirs: tuple[Tensor, ...], mask: Tensor
    ) -> Tensor:
        apart = mask.new_zeros(len(mask), dtype=torch.float32)
        for place, (student, teacher) in enumerate(self._pairs):
            states = mine[student].float()
            if len(self.projections):
                states = self.projections[place](states)
            apart = apart + hidden_apart(states, theirs[teacher].float(), mask)
        return apart / len(self._pairs)


def hidden_apart(mine: Tensor, theirs: Tensor, mask: Tensor) -> Tensor:
    """Mean squared difference `(W,)` of hidden states `(W, T, H)` over tokens and numbers."""
    return _over_tokens((mine - theirs).square().mean(dim=-1), mask)


def relations_apart(
    mine: Sequence[Tensor], theirs: Sequence[Tensor], mask: Tensor, *, n_heads: int
) -> Tensor:
    """KL(teacher || student) `(W,)` of relations, a mean over kinds, relation heads and tokens.

    Each kind (queries, keys, values `(W, T, H)`) is related to itself: softmax of the scaled dot
    products of all pairs of tokens in `n_heads` parts (Wang et al. 2021, equations 3 and 6).
    """
    apart = mask.new_zeros(len(mask), dtype=torch.float32)
    for one, other in zip(mine, theirs, strict=True):
        student, teacher = (_relations(each.float(), mask, n_heads) for each in (one, other))
        # Where a token is hidden both are as good as zero, and so is their difference.
        by_token = (teacher.exp() * (teacher - student)).sum(dim=-1).mean(dim=1)  # (W, T)
        apart = apart + _over_tokens(by_token, mask)
    return apart / len(mine)


def _relations(states: Tensor, mask: Tensor, n_heads: int) -> Tensor:
    """Log-relations `(W, R, T, T)` of `(W, T, H)`; padding is related to by nobody."""
    parts = states.reshape(*states.shape[:2], n_heads, -1).transpose(1, 2)  # (W, R, T, H / R)
    scores = parts @ parts.transpose(-1, -2) / math.sqrt(parts.shape[-1])
    lowest = torch.finfo(scores.dtype).min / 2  # halved, so that differences stay finite
    return scores.masked_fill(~mask[:, None, None, :], lowest).log_softmax(dim=-1)


def _over_tokens(values: Tensor, mask: Tensor) -> Tensor:
    """Means `(W,)` of `(W, T)` over the tokens that are none of padding."""
    return (values * mask).sum(dim=1) / mask.sum(dim=1)


def _spread(mine: int, theirs: int) -> tuple[tuple[int, int], ...]:
    """Every layer of the student with one of the teacher, evenly, embeddings with embeddings."""
    return tuple((layer, round(layer * theirs / mine)) for layer in range(mine + 1))


def _projections(n: int, mine: int, theirs: int, *, seed: int) -> nn.ModuleList:
    generator = torch.Generator().manual_seed(seed)
    made = [nn.Linear(mine, theirs, bias=False) for _ in range(n)]
    for projection in made:
        nn.init.normal_(projection.weight, std=1 / math.sqrt(mine), generator=generator)
    return nn.ModuleList(made)


def _relation_heads(config: DistilConfig, teacher: Classifier, mine: int, theirs: int) -> int:
    asked = None if config.relations is None else config.relations.heads
    if asked is None:
        return math.gcd(teacher.encoder.config.num_attention_heads, mine, theirs)
    if mine % asked or theirs % asked:
        raise ConfigError(
            f"distil.relations.heads: got {asked}, which does not divide the widths {mine} of the "
            f"student and {theirs} of the teacher; take a number that does, or leave it out"
        )
    return asked


def _depth(model: Classifier) -> int:
    return int(model.encoder.config.num_hidden_layers)
