"""Cuts a fine-tuned model as a task asks, and measures what that costs."""

from __future__ import annotations

import copy
import logging
import random
from typing import TYPE_CHECKING

import numpy as np

from pipeline.model.labelled import label_matrices
from pipeline.model.metrics import gate_metric
from pipeline.model.prune.anatomy import family_of
from pipeline.model.prune.choose import choose_layers, choose_parts
from pipeline.model.prune.cut import drop_layers, keep_parts, shape_of
from pipeline.model.prune.importance import measure_importance
from pipeline.model.prune.sizes import model_size
from pipeline.model.record_logits import record_logits
from schemas.errors import DataContractError
from schemas.prune import CurvePoint, Cut, LayerSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from pipeline.model.prune.importance import Importance
    from schemas.prune import ModelSize, PruneConfig
    from schemas.task import TrainConfig

log = logging.getLogger(__name__)


class Pruner:
    """Prunes classifiers of one task, with one set of settings.

    What it measures on is drawn by `train.seed`: importance on training records, so that validation
    records judge a cut that they had no part in.

    Raises:
        DataContractError: there is nothing to measure on.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        heads: tuple[HeadSlice, ...],
        *,
        train: TrainConfig,
        prune: PruneConfig,
        pad_id: int,
    ) -> None:
        self._heads, self._train, self._prune, self._pad_id = heads, train, prune, pad_id
        by_split = {
            split: [example for example in examples if example.split == split]
            for split in ("train", "valid")
        }
        for split, found in by_split.items():
            if not found:
                raise DataContractError(
                    f"compress.prune: no {split} records to measure on; add labelled rows or "
                    f"change train.valid_fraction"
                )
        self._valid = by_split["valid"]
        self._sample, self._curve_sample = (self._drawn(found) for found in by_split.values())
        windows = [window for example in self._curve_sample for window in example.windows]
        self._tokens = float(np.mean([window.n_tokens for window in windows]))

    def prune(self, model: Classifier, *, fingerprint: str) -> Cut:
        """Cuts `model` in place: layers first, then by what the rest says of heads and neurons.

        Raises:
            ConfigError: the encoder cannot be cut that way.
        """
        before, whole = model_size(model, tokens=self._tokens), self.macro_f1(model)
        gone = choose_layers(
            model, self._sample, self._heads,
            train=self._train, prune=self._prune, pad_id=self._pad_id,
        )  # fmt: skip
        drop_layers(model.encoder, gone)
        importance = measure_importance(
            model, self._sample, self._heads,
            train=self._train, prune=self._prune, pad_id=self._pad_id,
        )  # fmt: skip
        curve = self._curve(model, importance, before)
        keep_parts(
            model.encoder,
            choose_parts(importance, heads=self._prune.heads, neurons=self._prune.neurons),
        )
        after = model_size(model, tokens=self._tokens)
        return Cut(
            fingerprint=fingerprint,
            layers=layer_summaries(model),
            before=before,
            after=after,
            flops_share=after.forward_mflops / before.forward_mflops,
            valid_macro_f1_whole=whole,
            valid_macro_f1_cut=self.macro_f1(model),
            curve=curve,
        )

    def macro_f1(self, model: Classifier, examples: Sequence[Example] | None = None) -> float:
        """The mean of the heads' macro-F1, on all validation records unless others are given."""
        examples = self._valid if examples is None else examples
        logits = record_logits(model, examples, pad_id=self._pad_id, how=self._train.window_pooling)
        return gate_metric(logits, label_matrices(examples, self._heads), self._heads)

    def _curve(
        self, model: Classifier, importance: Importance, whole: ModelSize
    ) -> tuple[CurvePoint, ...]:
        """The model without more and more heads, and without more and more neurons."""
        points = []
        for part in ("heads", "neurons"):
            if part == "heads" and not family_of(model.encoder).cuts_heads:
                continue
            for share in self._prune.curve:
                cut = copy.deepcopy(model)
                shares = {"heads": 0.0, "neurons": 0.0, part: share}
                keep_parts(cut.encoder, choose_parts(importance, **shares))
                size = model_size(cut, tokens=self._tokens)
                points.append(
                    CurvePoint(
                        part=part,
                        share=share,
                        valid_macro_f1=self.macro_f1(cut, self._curve_sample),
                        flops_share=size.forward_mflops / whole.forward_mflops,
                        size=size,
                    )
                )
                log.info(
                    "without %.0f %% of %s: valid macro-F1 %.4f on %d records",
                    100 * share, part, points[-1].valid_macro_f1, len(self._curve_sample),
                )  # fmt: skip
        return tuple(points)

    def _drawn(self, examples: Sequence[Example]) -> list[Example]:
        if len(examples) <= self._prune.sample_records:
            return list(examples)
        chooser = random.Random(self._train.seed)  # noqa: S311 - a sample, not a secret
        places = chooser.sample(range(len(examples)), self._prune.sample_records)
        return [examples[place] for place in sorted(places)]


def layer_summaries(model: Classifier) -> tuple[LayerSummary, ...]:
    """How much is left of each layer."""
    return tuple(
        LayerSummary(layer=kept.layer, heads=len(kept.heads), neurons=len(kept.neurons))
        for kept in shape_of(model.encoder).layers
    )
