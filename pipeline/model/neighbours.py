"""How like a text is to those that a head was trained with: a column beside the model's logits.

The cosine to the k-th most like training text tells texts outside where a classifier is sure of
what it has never seen (Sun et al. 2022, arXiv 2204.06507). The graph itself holds the vectors that
it compares with, so that every engine that runs the model gives the score.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pipeline.heads import head_slices
from pipeline.model.batches import tensor_inputs
from pipeline.model.gate import TorchEncoder
from pipeline.model.labelled import known_rows, label_matrix, outside_rows
from pipeline.model.metrics import fit_temperature
from pipeline.model.outputs import fit_scope, run_encoder
from pipeline.model.text_features import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.window import Window
    from schemas.head import KnnConfig
    from schemas.task import TaskConfig

LIKENESS = "likeness"  # what the classifier calls it, and so the operators of the graph
_SHORTEST = 1e-4  # of a vector; half precision knows no much smaller number than that
_WINDOWS_AT_ONCE = 32
log = logging.getLogger(__name__)


class Likeness(nn.Module):
    """Puts a column for each of some heads behind the `n_logits` that a window has.

    `vectors` `(K, H)` by head are what a window's is compared with, `ranks` which of the most like
    ones counts. A head's column is in `columns`.
    """

    def __init__(
        self, vectors: Mapping[str, Tensor], ranks: Mapping[str, int], *, n_logits: int
    ) -> None:
        super().__init__()
        self._n_logits = n_logits
        self._ranks = [min(ranks[name], len(kept)) for name, kept in vectors.items()]
        self.columns = {name: n_logits + place for place, name in enumerate(vectors)}
        for place, kept in enumerate(vectors.values()):
            self.register_buffer(f"kept{place}", nn.functional.normalize(kept, dim=1).T.clone())

    def forward(self, logits: Tensor, vectors: Tensor) -> Tensor:
        """Logits `(B, L + C)` of `(B, L)`, windows' weights last as before; vectors `(B, H)`."""
        units = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=_SHORTEST)
        found = [
            torch.topk(torch.matmul(units, kept), rank, dim=1).values[:, -1:]
            for rank, kept in zip(self._ranks, self.buffers(), strict=True)
        ]
        return torch.cat([logits[:, : self._n_logits], *found, logits[:, self._n_logits :]], dim=1)


def add_likeness(
    model: Classifier,
    splits: Mapping[str, list[Example]],
    task: TaskConfig,
    *,
    pad_id: int,
) -> dict[str, int]:
    """Gives `model` its `likeness` for the heads that it tells texts outside best for.

    Answers their columns; none, with the model as it was, where no head asks for it or other scores
    tell the validation texts outside as well. So most models carry no vectors to no end.
    """
    asked = {
        head.name: (head, knn)
        for head in head_slices(task.heads)
        if (knn := _asked(head, splits)) is not None
    }
    if not asked:
        return {}
    vectors = {
        name: pooled_vectors(
            model, _windows(splits["train"], head, knn, seed=task.train.seed), pad_id=pad_id
        )
        for name, (head, knn) in asked.items()
    }
    ranks = {name: knn.neighbours for name, (_, knn) in asked.items()}
    model.likeness = tried = Likeness(vectors, ranks, n_logits=model.n_logits)
    better = _where_better(model, splits["valid"], task, tried.columns)
    model.likeness = None
    if not better:
        return {}
    kept = {name: vectors[name] for name in vectors if name in better}
    model.likeness = chosen = Likeness(kept, ranks, n_logits=model.n_logits)
    return chosen.columns


@torch.no_grad()
def pooled_vectors(model: Classifier, windows: Sequence[Window], *, pad_id: int) -> Tensor:
    """The vectors `(W, H)` that the heads read, of windows in order of length."""
    ordered = sorted(windows, key=lambda window: window.n_tokens)
    model.eval()
    return torch.cat(
        [
            model.encode(
                **tensor_inputs(model, ordered[at : at + _WINDOWS_AT_ONCE], pad_id=pad_id)
            )[1]
            for at in range(0, len(ordered), _WINDOWS_AT_ONCE)
        ]
    )


def _asked(head: HeadSlice, splits: Mapping[str, list[Example]]) -> KnnConfig | None:
    """How to look for neighbours; None where nobody asks, or nothing could be compared or judged.

    That no validation text has a label at all is told by the rule itself.
    """
    knn = None if head.config.outside is None else head.config.outside.knn
    if knn is None:
        return None
    train, valid = splits["train"], splits["valid"]
    is_outside = outside_rows(valid, head.name)
    can_judge = is_outside.any() and _inside(valid, head)
    if can_judge and _inside(train, head):
        return knn
    log.warning(
        "head %s: knn is not tried, since there are no training texts that a label fits, or no "
        "validation texts of both kinds", head.name,
    )  # fmt: skip
    return None


def _inside(examples: Sequence[Example], head: HeadSlice) -> list[Example]:
    if not examples:
        return []
    known = known_rows(label_matrix(examples, head.name, head.config))
    return [example for example, is_known in zip(examples, known, strict=True) if is_known]


def _windows(
    train: Sequence[Example], head: HeadSlice, knn: KnnConfig, *, seed: int
) -> list[Window]:
    windows = [window for example in _inside(train, head) for window in example.windows]
    return sampled(windows, limit=knn.texts, seed=seed)


def _where_better(
    model: Classifier, valid: Sequence[Example], task: TaskConfig, columns: Mapping[str, int]
) -> set[str]:
    """The heads whose rule would be `knn`, as the model itself answers validation texts."""
    outputs = run_encoder(TorchEncoder(model), valid, pooling=task.train.window_pooling)
    logits = outputs.pooled_logits()
    heads = head_slices(task.heads)
    temperatures = {
        head.name: fit_temperature(logits, label_matrix(valid, head.name, head.config), head)
        for head in heads
    }
    better = set()
    for head in head_slices(task.heads, temperatures):
        if head.name not in columns:
            continue
        rule = fit_scope(outputs, valid, head, column=columns[head.name])
        log.info("head %s, before export: texts outside are told best by %s", head.name, rule)
        if rule is not None and rule.method == "knn":
            better.add(head.name)
    return better
