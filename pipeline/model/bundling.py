"""From a fine-tuned model to a bundle: export, quantize, gate, calibrate, evaluate, describe."""

from __future__ import annotations

import logging
import random
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.engines.host import describe_host
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import HeadSlice, head_slices
from pipeline.model.baselines import measure_baselines
from pipeline.model.card import model_card
from pipeline.model.export import export_onnx
from pipeline.model.gate import (
    TorchEncoder,
    choose_variant,
    parity_batches,
    parity_gate,
    variant_gates,
)
from pipeline.model.half import convert_to_half
from pipeline.model.labelled import Example, label_matrix
from pipeline.model.metrics import fit_temperature, head_metrics
from pipeline.model.outputs import Outputs, fit_scope, run_encoder, with_scope
from pipeline.model.quantize import (
    prepare_for_quantization,
    quantize_to_dynamic,
    quantize_to_static,
)
from schemas.bundle import (
    BUNDLE_FILE,
    CARD_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    BundleSpec,
    GateResult,
    HeadMetrics,
)
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.model.network import Classifier
    from schemas.scope import ScopeRule
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


@dataclass(frozen=True)
class VariantFacts:
    """What a variant weighs and how fast it is on this host: facts for people, not gates."""

    megabytes: float
    windows_per_s: float


@dataclass
class Bundled:
    """A bundle's description, and what the run page wants to show beside it."""

    spec: BundleSpec
    facts: dict[Variant, VariantFacts]
    test_outputs: Outputs
    test: list[Example] = field(default_factory=list)


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
    files = _make_variants(model, splits, task, work)
    gates = _measure_gates(model, splits, task, files, heads, pad_id=source.pad_id)
    for gate in gates:
        log.info("gate %s", gate)
    variant = choose_variant(task.compress.prefer, gates)
    log.info("chosen variant: %s", variant)
    pooling = task.train.window_pooling
    encoder = OnnxEncoder(files[variant])
    valid = run_encoder(encoder, splits["valid"], pooling=pooling)
    temperatures = _temperatures(valid, splits["valid"], heads)
    test = splits["test"] or splits["valid"]
    outputs = run_encoder(encoder, test, pooling=pooling)
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
        metrics=_metrics(outputs, test, calibrated, seed=task.train.seed),
        fp32_metrics=_metrics(
            run_encoder(OnnxEncoder(files["fp32"]), test, pooling=pooling),
            test,
            heads,
            seed=task.train.seed,
        ),
        baseline_metrics=measure_baselines(splits, heads, seed=task.train.seed),
        gates=tuple(gates),
        host=describe_host(),
    )
    facts = {name: _facts(path, test) for name, path in files.items()}
    shutil.rmtree(work)  # kept only where no variant passed, for a person to look at
    (folder / CARD_FILE).write_text(model_card(spec), encoding="utf-8")
    spec.write(folder / BUNDLE_FILE)  # last: its existence means that the bundle is complete
    return Bundled(spec, facts, outputs, test)


def _make_variants(
    model: Classifier, splits: Mapping[str, list[Example]], task: TaskConfig, work: Path
) -> dict[Variant, Path]:
    """FP32 always, since the others are made from it and compared with it."""
    files: dict[Variant, Path] = {"fp32": work / "fp32.onnx"}
    input_names = export_onnx(model, files["fp32"])
    wanted = set(task.compress.prefer)
    if "fp16" in wanted:
        files["fp16"] = convert_to_half(files["fp32"], work / "fp16.onnx")
    if wanted <= {"fp16", "fp32"}:
        return files
    prepared = prepare_for_quantization(files["fp32"], work / "prepared.onnx")
    if "int8_dynamic" in wanted:
        files["int8_dynamic"] = quantize_to_dynamic(prepared, work / "int8_dynamic.onnx")
    if "int8_static" in wanted:
        chooser = random.Random(task.train.seed)  # noqa: S311 - a sample, not a secret
        pool = [example.windows[0] for example in splits["train"] + splits["valid"]]
        calibration = chooser.sample(pool, min(task.compress.calibration_texts, len(pool)))
        files["int8_static"] = quantize_to_static(
            prepared, work / "int8_static.onnx", calibration=calibration, input_names=input_names
        )
    prepared.unlink()
    return files


def _measure_gates(
    model: Classifier,
    splits: Mapping[str, list[Example]],
    task: TaskConfig,
    files: Mapping[Variant, Path],
    heads: tuple[HeadSlice, ...],
    *,
    pad_id: int,
) -> list[GateResult]:
    reference = TorchEncoder(model)
    # All validation records, and training records where these are fewer than the gates want.
    n_valid = len(splits["valid"])
    texts = splits["valid"] + splits["train"][: max(0, task.compress.gate_texts - n_valid)]
    outputs = run_encoder(reference, texts, pooling=task.train.window_pooling)
    batches = parity_batches([example.windows[0] for example in texts], pad_id=pad_id)
    gates = [parity_gate(reference, OnnxEncoder(files["fp32"]), batches, config=task.compress)]
    for variant, path in files.items():
        gates += variant_gates(
            variant, path, texts=texts, n_valid=n_valid, reference=outputs, heads=heads,
            config=task.compress,
        )  # fmt: skip
    return gates


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


def _facts(path: Path, examples: Sequence[Example], *, windows: int = 64) -> VariantFacts:
    encoder = OnnxEncoder(path)
    chosen = [example.windows[0] for example in examples[:windows]]
    encoder.logits(chosen[:8])
    start = time.perf_counter()
    encoder.logits(chosen)
    rate = len(chosen) / (time.perf_counter() - start)
    return VariantFacts(megabytes=path.stat().st_size / 1e6, windows_per_s=rate)


def _place_files(folder: Path, *, model: Path, tokenizer: Path) -> dict[str, str]:
    """Copies the chosen files into the bundle and answers their digests."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(model, folder / MODEL_FILE)
    shutil.copyfile(tokenizer, folder / TOKENIZER_FILE)
    return {name: digest_of_file(folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
