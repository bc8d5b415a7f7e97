"""From a fine-tuned model to a bundle: export, quantize, gate, calibrate, evaluate, describe."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.engines.host import describe_host
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import HeadSlice, head_slices
from pipeline.model.baselines import measure_baselines
from pipeline.model.card import model_card
from pipeline.model.gate import AllCores, choose_variant, reason_for
from pipeline.model.gate_checks import variant_metrics
from pipeline.model.gate_inputs import ODD_TEXTS, odd_windows
from pipeline.model.gate_run import Measured, measure_variants
from pipeline.model.gate_table import gate_table
from pipeline.model.labelled import Example, label_matrix
from pipeline.model.metrics import fit_temperature, head_metrics
from pipeline.model.model_file import model_files
from pipeline.model.neighbours import add_likeness
from pipeline.model.outputs import Outputs, fit_scope, run_encoder, with_scope
from pipeline.model.text_features import sampled
from pipeline.model.variants import VariantMaker
from pipeline.model.verification import write_verification
from schemas.bundle import (
    BUNDLE_FILE,
    CARD_FILE,
    TOKENIZER_FILE,
    VERIFICATION_FILE,
    BundleSpec,
    HeadMetrics,
)
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of_file
from schemas.sweep import SWEEP_FILE, Sweeps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.model.network import Classifier
    from schemas.distilled import Distilled
    from schemas.scope import ScopeRule
    from schemas.sweep import Sweep
    from schemas.task import TaskConfig, Variant

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """Where a model comes from: what goes into the bundle's lineage."""

    training_run: str
    data_digest: str
    cleaner_version: str
    special_tokens: tuple[str, ...]
    pad_id: int
    near_duplicates: Mapping[str, int] = field(default_factory=dict)
    conflicting_labels: Mapping[str, int] = field(default_factory=dict)
    distilled: Distilled | None = None


@dataclass
class Bundled:
    """A bundle's description, and what the run page wants to show beside it."""

    spec: BundleSpec
    test_outputs: Outputs
    test: list[Example] = field(default_factory=list)
    sweeps: tuple[Sweep, ...] = ()


def make_bundle(
    model: Classifier,
    examples: Sequence[Example],
    task: TaskConfig,
    source: Source,
    *,
    checkpoint: Path,
    folder: Path,
) -> Bundled:
    """Writes `folder` with the first preferred variant that passes its gates.

    Gates, temperatures and rules for texts outside look at validation records; the metrics in the
    bundle come from test records (validation where there are none), which nothing was chosen on.

    Raises:
        ArtifactError: no variant passes its gates.
        DataContractError: there are no validation records, or none from which a head's rule for
            texts outside can be learnt.
    """
    splits = _by_split(examples)
    work = folder.with_name("variants")
    work.mkdir(parents=True, exist_ok=True)
    columns = add_likeness(model, splits, task, pad_id=source.pad_id)
    tokenizer = BackboneTokenizer(checkpoint / TOKENIZER_FILE)
    maker = _variant_maker(model, splits, task, work)
    measured = measure_variants(
        model, splits, task, maker,
        odd=odd_windows(ODD_TEXTS, tokenizer, task), pad_id=source.pad_id,
    )  # fmt: skip
    log.info("gates, as measured on this host:\n%s", gate_table(measured.gates))
    shipped = _choose(measured, splits, task, columns)
    model_file = measured.files[shipped.variant]
    spec = BundleSpec(
        **_lineage(task, source),
        **_quality(measured, shipped, splits, task),
        variant=shipped.variant,
        choice=shipped.choice,
        temperatures=shipped.temperatures,
        scopes=shipped.scopes,
        files=_place_files(folder, model=model_file, tokenizer=checkpoint / TOKENIZER_FILE),
        gates=tuple(measured.gates),
        host=describe_host(),
        facts=measured.facts,
        verification=write_verification(
            folder / VERIFICATION_FILE, task, splits["valid"], tokenizer=tokenizer,
            fp32=shipped.encoders["fp32"], shipped=shipped.encoders[shipped.variant],
        ),
        export=maker.describe(shipped.variant, model_file),
    )  # fmt: skip
    shutil.rmtree(work)  # kept only where no variant passed, for a person to look at
    _complete(folder, spec, measured.sweeps)
    return Bundled(spec, shipped.outputs[shipped.variant], shipped.test, measured.sweeps)


def _by_split(examples: Sequence[Example]) -> dict[str, list[Example]]:
    splits: dict[str, list[Example]] = {"train": [], "valid": [], "test": []}
    for example in examples:
        splits[example.split].append(example)
    if not splits["valid"]:
        raise DataContractError("no validation records: raise train.valid_fraction or add rows")
    return splits


@dataclass(frozen=True)
class _Shipped:
    """The chosen variant, calibrated, and what it and FP32 say of the `test` records."""

    variant: Variant
    choice: str
    temperatures: dict[str, float]
    scopes: dict[str, ScopeRule]
    encoders: dict[Variant, OnnxEncoder]
    outputs: dict[Variant, Outputs]
    test: list[Example]


def _choose(
    measured: Measured,
    splits: Mapping[str, list[Example]],
    task: TaskConfig,
    columns: Mapping[str, int],
) -> _Shipped:
    """The first preferred variant that passes; test records are read when it is chosen.

    Raises:
        ArtifactError: none passes.
    """
    variant = choose_variant(task.compress.prefer, measured.gates)
    choice = reason_for(variant, task.compress.prefer, measured.gates)
    log.info("chosen variant: %s", choice)
    said, valid = measured.said[variant], splits["valid"]
    temperatures = _temperatures(said, valid, head_slices(task.heads))
    test = splits["test"] or valid
    compared: set[Variant] = {variant, "fp32"}
    encoders = {name: OnnxEncoder(measured.files[name]) for name in compared}
    outputs = {
        name: run_encoder(AllCores(encoder), test, pooling=task.train.window_pooling)
        for name, encoder in encoders.items()
    }
    scopes = _scopes(said, valid, head_slices(task.heads, temperatures), columns)
    return _Shipped(variant, choice, temperatures, scopes, encoders, outputs, test)


def _lineage(task: TaskConfig, source: Source) -> dict[str, Any]:
    """What a bundle says of the task and the run that it was made by."""
    return {
        "task": task,
        "label_digests": {name: labels.digest for name, labels in task.label_sets.items()},
        "cleaner_version": source.cleaner_version,
        "special_tokens": source.special_tokens,
        "backbone": task.train.backbone,
        "training_run": source.training_run,
        "data_digest": source.data_digest,
        "near_duplicates": dict(source.near_duplicates),
        "conflicting_labels": dict(source.conflicting_labels),
        "distilled": source.distilled,
    }


def _quality(
    measured: Measured, shipped: _Shipped, splits: Mapping[str, list[Example]], task: TaskConfig
) -> dict[str, Any]:
    """Metrics of the chosen variant, FP32, baselines, and of all variants on validation."""
    heads, seed = head_slices(task.heads), task.train.seed
    calibrated = head_slices(task.heads, shipped.temperatures, scopes=shipped.scopes)
    own, fp32 = shipped.outputs[shipped.variant], shipped.outputs["fp32"]
    return {
        "metrics": _metrics(own, shipped.test, calibrated, seed=seed),
        "fp32_metrics": _metrics(fp32, shipped.test, heads, seed=seed),
        "baseline_metrics": measure_baselines(splits, heads, seed=seed),
        "variant_metrics": variant_metrics(measured.said, splits["valid"], heads, seed=seed),
    }


def _complete(folder: Path, spec: BundleSpec, sweeps: tuple[Sweep, ...]) -> None:
    """Writes what describes the bundle; `bundle.json` last: with it the bundle is complete."""
    if sweeps:
        Sweeps(sweeps=sweeps).write(folder / SWEEP_FILE)
    (folder / CARD_FILE).write_text(model_card(spec), encoding="utf-8")
    spec.write(folder / BUNDLE_FILE)


def _variant_maker(
    model: Classifier, splits: Mapping[str, list[Example]], task: TaskConfig, work: Path
) -> VariantMaker:
    pool = [example.windows[0] for example in splits["train"] + splits["valid"]]
    calibration = sampled(pool, limit=task.compress.calibration_texts, seed=task.train.seed)
    return VariantMaker(model, task.compress, calibration=calibration, work=work)


def _temperatures(
    outputs: Outputs, examples: list[Example], heads: tuple[HeadSlice, ...]
) -> dict[str, float]:
    logits = outputs.pooled_logits()
    return {
        head.name: fit_temperature(logits, label_matrix(examples, head.name, head.config), head)
        for head in heads
    }


def _scopes(
    outputs: Outputs,
    examples: list[Example],
    heads: tuple[HeadSlice, ...],
    columns: Mapping[str, int],
) -> dict[str, ScopeRule]:
    """Rules by head for texts that no label fits, of the heads that are to have one."""
    found = {
        head.name: fit_scope(outputs, examples, head, column=columns.get(head.name))
        for head in heads
    }
    rules = {name: rule for name, rule in found.items() if rule is not None}
    for name, rule in rules.items():
        log.info("head %s: texts outside go to people by %s", name, rule)
    return rules


def _metrics(
    outputs: Outputs, examples: list[Example], heads: tuple[HeadSlice, ...], *, seed: int
) -> dict[str, HeadMetrics]:
    langs, found = [example.lang for example in examples], {}
    for head in heads:
        target = label_matrix(examples, head.name, head.config)
        metrics = head_metrics(outputs.scores(head), target, head, seed=seed, langs=langs)
        found[head.name] = with_scope(metrics, outputs, examples, head)
    return found


def _place_files(folder: Path, *, model: Path, tokenizer: Path) -> dict[str, str]:
    """Copies the chosen files into the bundle and answers their digests."""
    folder.mkdir(parents=True, exist_ok=True)
    # Variants are already called as they are in a bundle, and so are weights beside them.
    sources = {path.name: path for path in model_files(model)} | {TOKENIZER_FILE: tokenizer}
    for name, source in sources.items():
        shutil.copyfile(source, folder / name)
    return {name: digest_of_file(folder / name) for name in sources}
