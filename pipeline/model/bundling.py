"""From a fine-tuned model to a bundle: export, quantize, gate, calibrate, evaluate, describe."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pipeline.engines.host import describe_host
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import HeadSlice, head_slices
from pipeline.model.baselines import measure_baselines
from pipeline.model.card import model_card
from pipeline.model.facts import facts_gates, measure_facts
from pipeline.model.gate import (
    TorchEncoder,
    Watch,
    choose_variant,
    parity_gate,
    reason_for,
    variant_gates,
)
from pipeline.model.gate_checks import variant_metrics
from pipeline.model.gate_inputs import ODD_TEXTS, odd_windows, parity_batches
from pipeline.model.labelled import Example, label_matrix
from pipeline.model.metrics import fit_temperature, head_metrics
from pipeline.model.model_file import model_files
from pipeline.model.outputs import Outputs, fit_scope, run_encoder, with_scope
from pipeline.model.sweep import Rescue, Sample, rescue
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
    from schemas.bundle import VariantFacts
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
    facts: dict[Variant, VariantFacts]
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
    splits: dict[str, list[Example]] = {"train": [], "valid": [], "test": []}
    for example in examples:
        splits[example.split].append(example)
    if not splits["valid"]:
        raise DataContractError("no validation records: raise train.valid_fraction or add rows")
    work = folder.with_name("variants")
    work.mkdir(parents=True, exist_ok=True)
    heads = head_slices(task.heads)
    maker = _variant_maker(model, splits, task, work)
    files = maker.make_all()
    tokenizer = BackboneTokenizer(checkpoint / TOKENIZER_FILE)
    watch = Watch(odd_windows(ODD_TEXTS, tokenizer, task))
    measured = _measure_gates(
        model, splits, task, maker, files, heads, pad_id=source.pad_id, watch=watch
    )
    facts = measure_facts(files, [example.windows[0] for example in splits["valid"]])
    gates = [*measured.gates, *facts_gates(facts, task.compress)]
    for gate in gates:
        log.info("gate %s", gate)
    variant = choose_variant(task.compress.prefer, gates)
    choice = reason_for(variant, task.compress.prefer, gates)
    log.info("chosen variant: %s", choice)
    valid = watch.said[files[variant]]
    temperatures = _temperatures(valid, splits["valid"], heads)
    test = splits["test"] or splits["valid"]
    compared: set[Variant] = {variant, "fp32"}
    encoders = {name: OnnxEncoder(files[name]) for name in compared}
    outputs = {
        name: run_encoder(encoder, test, pooling=task.train.window_pooling)
        for name, encoder in encoders.items()
    }
    scopes = _scopes(valid, splits["valid"], head_slices(task.heads, temperatures))
    calibrated = head_slices(task.heads, temperatures, scopes=scopes)
    spec = BundleSpec(
        task=task,
        label_digests={name: labels.digest for name, labels in task.label_sets.items()},
        temperatures=temperatures,
        scopes=scopes,
        cleaner_version=source.cleaner_version,
        special_tokens=source.special_tokens,
        variant=variant,
        files=_place_files(folder, model=files[variant], tokenizer=checkpoint / TOKENIZER_FILE),
        backbone=task.train.backbone,
        training_run=source.training_run,
        data_digest=source.data_digest,
        near_duplicates=dict(source.near_duplicates),
        conflicting_labels=dict(source.conflicting_labels),
        distilled=source.distilled,
        metrics=_metrics(outputs[variant], test, calibrated, seed=task.train.seed),
        fp32_metrics=_metrics(outputs["fp32"], test, heads, seed=task.train.seed),
        baseline_metrics=measure_baselines(splits, heads, seed=task.train.seed),
        gates=tuple(gates),
        host=describe_host(),
        choice=choice,
        facts=facts,
        variant_metrics=variant_metrics(
            {name: watch.said[path] for name, path in files.items()},
            splits["valid"],
            heads,
            seed=task.train.seed,
        ),
        verification=write_verification(
            folder / VERIFICATION_FILE,
            task,
            splits["valid"],
            fp32=encoders["fp32"],
            shipped=encoders[variant],
            tokenizer=tokenizer,
        ),
        export=maker.describe(variant, files[variant]),
    )
    if measured.sweeps:
        Sweeps(sweeps=tuple(measured.sweeps)).write(folder / SWEEP_FILE)
    shutil.rmtree(work)  # kept only where no variant passed, for a person to look at
    (folder / CARD_FILE).write_text(model_card(spec), encoding="utf-8")
    spec.write(folder / BUNDLE_FILE)  # last: its existence means that the bundle is complete
    return Bundled(spec, facts, outputs[variant], test, sweeps=tuple(measured.sweeps))


def _variant_maker(
    model: Classifier, splits: Mapping[str, list[Example]], task: TaskConfig, work: Path
) -> VariantMaker:
    pool = [example.windows[0] for example in splits["train"] + splits["valid"]]
    calibration = sampled(pool, limit=task.compress.calibration_texts, seed=task.train.seed)
    return VariantMaker(model, task.compress, calibration=calibration, work=work)


def _measure_gates(
    model: Classifier,
    splits: Mapping[str, list[Example]],
    task: TaskConfig,
    maker: VariantMaker,
    files: dict[Variant, Path],
    heads: tuple[HeadSlice, ...],
    *,
    pad_id: int,
    watch: Watch,
) -> Rescue:
    """Gates of all variants; those of a failing one after it was rescued, if the task asks for it.

    A rescued variant stands in `files` in the place of the one that failed.
    """
    reference = TorchEncoder(model)
    # All validation records, and training records where these are fewer than the gates want.
    n_valid = len(splits["valid"])
    texts = splits["valid"] + splits["train"][: max(0, task.compress.gate_texts - n_valid)]
    outputs = run_encoder(reference, texts, pooling=task.train.window_pooling)
    batches = parity_batches(
        [example.windows[0] for example in texts], pad_id=pad_id, limit=task.window.max_tokens,
        odd=watch.odd,
    )  # fmt: skip
    gates = [parity_gate(reference, OnnxEncoder(files["fp32"]), batches, config=task.compress)]
    measure = partial(
        variant_gates, texts=texts, n_valid=n_valid, reference=outputs, heads=heads,
        config=task.compress, watch=watch,
    )  # fmt: skip
    for variant, path in files.items():
        gates += measure(variant, path)
    take_sample = partial(_sample, splits["valid"], task, heads, files["fp32"])
    return rescue(maker, files, gates, measure=measure, take_sample=take_sample)


def _sample(
    valid: list[Example], task: TaskConfig, heads: tuple[HeadSlice, ...], fp32: Path
) -> Sample:
    texts = sampled(valid, limit=task.compress.sweep_texts, seed=task.train.seed)
    return Sample.of(fp32, texts, heads, pooling=task.train.window_pooling)


def _temperatures(
    outputs: Outputs, examples: list[Example], heads: tuple[HeadSlice, ...]
) -> dict[str, float]:
    logits = outputs.pooled_logits()
    return {
        head.name: fit_temperature(logits, label_matrix(examples, head.name, head.config), head)
        for head in heads
    }


def _scopes(
    outputs: Outputs, examples: list[Example], heads: tuple[HeadSlice, ...]
) -> dict[str, ScopeRule]:
    """Rules by head for texts that no label fits, of the heads that are to have one."""
    found = {head.name: fit_scope(outputs, examples, head) for head in heads}
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
