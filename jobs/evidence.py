"""The new model against the champion, gathered for the person who decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.evaluating import COMPARISON_FILE, PAGE_FILE
from pipeline.bundle import load_spec
from pipeline.model.comparison import ChampionComparison
from schemas.bundle import MODEL_FILE
from schemas.errors import ArtifactError
from schemas.evidence import (
    MAX_NAMES,
    Evidence,
    HeadEvidence,
    LabelChange,
    ModelFigures,
    Paired,
    SliceEvidence,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.engines.registry import Registry
    from pipeline.model.comparison import PairedResult
    from schemas.bundle import BundleSpec, GateResult, HeadMetrics
    from schemas.training import Finetuned, TrainingRun

EVIDENCE_FILE = "evidence.json"
MODEL_PAGE = "model.html"
_MAX_SENTENCE_CHARS = 600


def gather_evidence(
    spec: BundleSpec, place: TrainingRun, finetuned: Finetuned, registry: Registry
) -> Evidence:
    """All of it, unbounded; what was compared is what `write_evaluation` left."""
    compared = _comparison(place)
    champion = _champion_spec(spec.task.name, compared.version, registry)
    known = {} if champion is None else champion.metrics
    return Evidence(
        new=_figures(spec),
        champion=None if champion is None else _figures(champion, version=compared.version),
        champion_version=compared.version,
        choice=spec.choice[:_MAX_SENTENCE_CHARS],
        rows=finetuned.rows,
        heads=tuple(_head(name, found, compared) for name, found in spec.metrics.items()),
        slices=_slices(spec.metrics, known),
        gates=_gates(spec),
        labels=() if champion is None else _label_changes(spec, champion),
        notes=tuple(note[:_MAX_SENTENCE_CHARS] for note in compared.notes),
        pages={
            "evaluation": str(place.folder / PAGE_FILE),
            "model": str(place.folder / MODEL_PAGE),
            "evidence": str(place.folder / EVIDENCE_FILE),
        },
    )


def _comparison(place: TrainingRun) -> ChampionComparison:
    path = place.folder / COMPARISON_FILE
    if path.exists():
        return ChampionComparison.read(path)
    note = "It was bundled by an older version and not compared with the champion."
    return ChampionComparison(notes=(note,))


def _champion_spec(task: str, version: str | None, registry: Registry) -> BundleSpec | None:
    if version is None:
        return None
    try:
        return load_spec(registry.fetch(f"models:/{task}/{version}")[1])
    except ArtifactError:
        return None  # the comparison says so already, and why stands in the log


def _figures(spec: BundleSpec, *, version: str | None = None) -> ModelFigures:
    facts = spec.facts.get(spec.variant)
    return ModelFigures(
        version=version,
        training_run=spec.training_run,
        backbone=spec.backbone,
        variant=spec.variant,
        digest=spec.digest,
        data_digest=spec.data_digest,
        weights_digest=spec.files[MODEL_FILE],
        megabytes=None if facts is None else _short(facts.megabytes),
        windows_per_s=None if facts is None else _short(facts.windows_per_s),
        p95_ms=None if facts is None or facts.p95_ms is None else _short(facts.p95_ms),
        host=", ".join(spec.host.cpu_features),
        teachers=() if spec.distilled is None else tuple(map(str, spec.distilled.teachers)),
    )


def _head(name: str, found: HeadMetrics, compared: ChampionComparison) -> HeadEvidence:
    paired = compared.heads.get(name)
    return HeadEvidence(
        head=name,
        rows=found.rows,
        accuracy=_short(found.accuracy),
        accuracy_interval=_interval(found.accuracy_interval),
        macro_f1=_short(found.macro_f1),
        macro_f1_interval=_interval(found.macro_f1_interval),
        majority_accuracy=_short(found.majority_accuracy),
        calibration_error=_short(found.expected_calibration_error),
        paired=None if paired is None else _paired(paired),
    )


def _paired(found: PairedResult) -> Paired:
    return Paired(
        accuracy=_short(found.accuracy),
        accuracy_gain=_short(found.accuracy_gain),
        accuracy_gain_interval=_interval(found.accuracy_gain_interval),
        macro_f1=_short(found.macro_f1),
        macro_f1_gain=_short(found.macro_f1_gain),
        macro_f1_gain_interval=_interval(found.macro_f1_gain_interval),
        only_new=found.only_new,
        only_champion=found.only_champion,
        p_value=_short(found.p_value),
        verdict=found.verdict,
    )


def _slices(
    metrics: Mapping[str, HeadMetrics], champion: Mapping[str, HeadMetrics]
) -> tuple[SliceEvidence, ...]:
    """Languages with enough records to say something, those that are worst first."""
    found = []
    for head, values in metrics.items():
        theirs = champion[head].by_lang if head in champion else {}
        for lang, value in values.by_lang.items():
            if value.macro_f1 is None:
                continue
            other = theirs[lang].macro_f1 if lang in theirs else None
            interval = value.macro_f1_interval
            found.append(
                SliceEvidence(
                    head=head,
                    lang=lang,
                    rows=value.rows,
                    macro_f1=_short(value.macro_f1),
                    macro_f1_interval=None if interval is None else _interval(interval),
                    champion_macro_f1=None if other is None else _short(other),
                )
            )
    return tuple(sorted(found, key=lambda each: each.macro_f1))


def _gates(spec: BundleSpec) -> tuple[GateResult, ...]:
    """What failed first, then the variant that ships, then the others that passed."""
    return tuple(sorted(spec.gates, key=lambda gate: (gate.passed, gate.variant != spec.variant)))


def _label_changes(new: BundleSpec, champion: BundleSpec) -> tuple[LabelChange, ...]:
    mine = {name: labels.labels for name, labels in new.task.label_sets.items()}
    theirs = {name: labels.labels for name, labels in champion.task.label_sets.items()}
    changes = []
    for head in dict.fromkeys([*mine, *theirs]):
        ours, others = mine.get(head, ()), theirs.get(head, ())
        added, removed = _without(ours, others), _without(others, ours)
        if added or removed:
            changes.append(
                LabelChange(
                    head=head,
                    added=tuple(added[:MAX_NAMES]),
                    removed=tuple(removed[:MAX_NAMES]),
                    n_added=len(added),
                    n_removed=len(removed),
                )
            )
    return tuple(changes)


def _without(names: Iterable[str], others: Iterable[str]) -> list[str]:
    known = set(others)
    return [name for name in names if name not in known]


def _interval(interval: tuple[float, float]) -> tuple[float, float]:
    return _short(interval[0]), _short(interval[1])


def _short(value: float) -> float:
    """Four digits that count: no person reads more, and the way to them is narrow."""
    return float(f"{value:.4g}")
