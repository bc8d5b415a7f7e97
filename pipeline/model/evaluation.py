"""All that is known of a model's quality, gathered for one page: figures, never a record's text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from pipeline.heads import head_slices
from pipeline.model.comparison import ChampionComparison
from pipeline.model.facets import facets_of
from pipeline.model.findings import Diagnosis
from pipeline.model.head_quality import (
    Auroc,
    Bin,
    Confusion,
    LabelQuality,
    auroc,
    confusion_counts,
    known_answers,
    label_quality,
    reliability,
    top_confusions,
)
from pipeline.model.label_errors import Suspect
from pipeline.model.labelled import label_matrix
from pipeline.model.metrics import head_metrics
from pipeline.model.resampling import Interval, Patterns, interval
from schemas.bundle import HeadMetrics, LanguageMetrics
from schemas.manifest import Document
from schemas.searched import Searched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from pipeline.heads import HeadSlice
    from pipeline.model.bundling import Bundled
    from pipeline.model.labelled import Example
    from schemas.task import DataConfig

_TOP_SUSPECTS = 20


class HeadEvaluation(Document):
    """One head. `metrics` is what the bundle says; slices go by facet, then by value.

    `exact_match` is the share of records with all labels right, null for one label a record, as
    `confusions` and `matrix` (records by true label, then by answer) are empty for several.
    """

    name: str
    kind: str
    metrics: HeadMetrics
    weighted_f1: float
    weighted_f1_interval: Interval
    exact_match: float | None
    auroc: Auroc
    labels: tuple[LabelQuality, ...]
    confusions: tuple[Confusion, ...] = ()
    matrix: tuple[tuple[int, ...], ...] = ()
    reliability: tuple[Bin, ...]
    slices: dict[str, dict[str, LanguageMetrics]]
    baselines: dict[str, dict[str, float]] = Field(default_factory=dict)


class Evaluation(Document):
    """What the page shows. `measured_on` names the split; `suspects` are the surest ones only.

    `searched` is how the recipe was found, null where nobody asked for a search.
    """

    task: str
    run: str
    variant: str
    backbone: str
    measured_on: str
    rows: dict[str, int]
    heads: tuple[HeadEvaluation, ...]
    champion: ChampionComparison
    history: tuple[dict[str, float], ...]
    best_epoch: int
    diagnosis: Diagnosis | None
    suspects: tuple[Suspect, ...] = ()
    n_suspects: int = 0
    searched: Searched | None = None


@dataclass(frozen=True)
class Told:
    """What a run's earlier steps left for its page; `diagnosis` is null for runs without one."""

    history: Sequence[Mapping[str, float]]
    best_epoch: int
    rows: Mapping[str, int]
    diagnosis: Diagnosis | None = None
    suspects: Sequence[Suspect] = ()
    searched: Searched | None = None


def evaluate(bundled: Bundled, told: Told, champion: ChampionComparison) -> Evaluation:
    """The shipped model on the records that the bundle's metrics come from, head by head.

    A head whose labels are known of none of these is left out.
    """
    spec = bundled.spec
    heads = [
        evaluate_head(
            bundled.test_outputs.scores(head), bundled.test, head, data=spec.task.data,
            metrics=spec.metrics[head.name], seed=spec.task.train.seed,
            baselines=spec.baseline_metrics.get(head.name, {}),
        )
        for head in head_slices(spec.task.heads, spec.temperatures)
        if spec.metrics[head.name].rows
    ]  # fmt: skip
    return Evaluation(
        task=spec.task.name,
        run=spec.training_run,
        variant=spec.variant,
        backbone=spec.backbone,
        measured_on=bundled.test[0].split,
        rows=dict(told.rows),
        heads=tuple(heads),
        champion=champion,
        history=tuple(dict(row) for row in told.history),
        best_epoch=told.best_epoch,
        diagnosis=told.diagnosis,
        suspects=tuple(told.suspects[:_TOP_SUSPECTS]),
        n_suspects=len(told.suspects),
        searched=told.searched,
    )


def evaluate_head(
    scores: npt.NDArray[np.float64],
    examples: Sequence[Example],
    head: HeadSlice,
    *,
    data: DataConfig,
    metrics: HeadMetrics,
    seed: int,
    baselines: Mapping[str, dict[str, float]],
) -> HeadEvaluation:
    """One head from aggregated probabilities `(N, L)` and the records they are of."""
    names = head.config.answer_labels
    target = label_matrix(examples, head.name, head.config)
    truth, predicted, known_scores = known_answers(scores, target, head)
    weighted, bounds = weighted_f1(truth, predicted, head, seed=seed)
    is_single = truth.ndim == 1
    counts = confusion_counts(truth, predicted, len(names)) if is_single else None
    return HeadEvaluation(
        name=head.name,
        kind=head.config.kind,
        metrics=metrics,
        weighted_f1=weighted,
        weighted_f1_interval=bounds,
        exact_match=None if is_single else float((truth == predicted).all(axis=1).mean()),
        auroc=auroc(truth, known_scores, head),
        labels=label_quality(truth, predicted, head),
        confusions=() if counts is None else top_confusions(counts, names),
        matrix=() if counts is None else tuple(map(tuple, counts.tolist())),
        reliability=reliability(truth, predicted, known_scores, head),
        slices=_slices(scores, target, head, examples, data=data, seed=seed),
        baselines=dict(baselines),
    )


def weighted_f1(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], head: HeadSlice, *, seed: int
) -> tuple[float, Interval]:
    """Mean of F1 weighted by each label's records, and its interval."""
    patterns = Patterns.of(truth, predicted, head=head)
    score = partial(patterns.f1, by_support=True)
    return score(patterns.counts), interval(patterns, score, seed=seed)


def _slices(
    scores: npt.NDArray[np.float64],
    target: npt.NDArray[Any],
    head: HeadSlice,
    examples: Sequence[Example],
    *,
    data: DataConfig,
    seed: int,
) -> dict[str, dict[str, LanguageMetrics]]:
    """By facet, the values in its order; those without a known label are left out."""
    slices = {}
    for facet in facets_of(examples, data):
        by_value = head_metrics(scores, target, head, seed=seed, langs=facet.values).by_lang
        slices[facet.name] = {value: by_value[value] for value in facet.order if value in by_value}
    return slices
