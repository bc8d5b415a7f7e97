"""The new model against the champion, gathered for the person who decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from jobs.evaluating import COMPARISON_FILE, PAGE_FILE
from pipeline.bundle import load_spec
from pipeline.bundle_difference import label_differences
from pipeline.model.comparison import ChampionComparison
from schemas.bundle import MODEL_FILE
from schemas.errors import ArtifactError
from schemas.evidence import (
    MAX_NAMES,
    Evidence,
    HeadEvidence,
    LabelChange,
    ModelFigures,
    SliceEvidence,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.engines.registry import Registry
    from schemas.bundle import BundleSpec, GateResult, HeadMetrics
    from schemas.manifest import Document
    from schemas.training import Finetuned, TrainingRun

EVIDENCE_FILE = "evidence.json"
MODEL_PAGE = "model.html"
_MAX_SENTENCE_CHARS = 600
D = TypeVar("D", bound="Document")


def gather_evidence(
    spec: BundleSpec, place: TrainingRun, finetuned: Finetuned, registry: Registry
) -> Evidence:
    """All of it, unbounded; what was compared is what `write_evaluation` left."""
    compared = _comparison(place)
    champion = _champion_spec(spec.task.name, compared.version, registry)
    known = {} if champion is None else champion.metrics
    return Evidence(
        new=_rounded(_figures(spec)),
        champion=None
        if champion is None
        else _rounded(_figures(champion, version=compared.version)),
        champion_version=compared.version,
        choice=spec.choice[:_MAX_SENTENCE_CHARS],
        rows=finetuned.rows,
        heads=tuple(_rounded(_head(*each, compared)) for each in spec.metrics.items()),
        slices=tuple(map(_rounded, _slices(spec.metrics, known))),
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
        megabytes=None if facts is None else facts.megabytes,
        windows_per_s=None if facts is None else facts.windows_per_s,
        p95_ms=None if facts is None else facts.p95_ms,
        host=", ".join(spec.host.cpu_features),
        teachers=() if spec.distilled is None else tuple(map(str, spec.distilled.teachers)),
    )


def _head(name: str, found: HeadMetrics, compared: ChampionComparison) -> HeadEvidence:
    return HeadEvidence(
        head=name,
        rows=found.rows,
        accuracy=found.accuracy,
        accuracy_interval=found.accuracy_interval,
        macro_f1=found.macro_f1,
        macro_f1_interval=found.macro_f1_interval,
        majority_accuracy=found.majority_accuracy,
        calibration_error=found.expected_calibration_error,
        paired=compared.heads.get(name),
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
            found.append(
                SliceEvidence(
                    head=head,
                    lang=lang,
                    rows=value.rows,
                    macro_f1=value.macro_f1,
                    macro_f1_interval=value.macro_f1_interval,
                    champion_macro_f1=other,
                )
            )
    return tuple(sorted(found, key=lambda each: each.macro_f1))


def _gates(spec: BundleSpec) -> tuple[GateResult, ...]:
    """What failed first, then the variant that ships, then the others that passed."""
    return tuple(sorted(spec.gates, key=lambda gate: (gate.passed, gate.variant != spec.variant)))


def _label_changes(new: BundleSpec, champion: BundleSpec) -> tuple[LabelChange, ...]:
    return tuple(
        LabelChange(
            head=change.head,
            added=change.added[:MAX_NAMES],
            removed=change.removed[:MAX_NAMES],
            n_added=len(change.added),
            n_removed=len(change.removed),
        )
        for change in label_differences(champion, new)
        if not change.reordered
    )


def _rounded(document: D) -> D:
    """With four digits that count: no person reads more, and the way to them is narrow."""
    return type(document).model_validate(_short(document.model_dump()))


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _short(inner) for name, inner in value.items()}
    return [_short(inner) for inner in value] if isinstance(value, (list, tuple)) else value
