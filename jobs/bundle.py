"""A checkpoint into a bundle: export, quantize, gate, calibrate, evaluate."""

from __future__ import annotations

import json
import logging
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobs import lineage_facts
from jobs.evaluating import write_evaluation
from jobs.evidence import EVIDENCE_FILE, MODEL_PAGE, gather_evidence
from jobs.lineage import step
from jobs.options import Context, dry_run_option, job, overrides_argument, run_option, show_config
from jobs.prune import DONE_FILE as PRUNED_FILE
from jobs.prune import checkpoint_to_ship
from jobs.run_tree import log_bundle, log_prune
from jobs.step_metrics import tell_metrics
from pipeline.bundle import load_spec
from pipeline.engines.model_page import write_model_page
from pipeline.engines.prometheus_steps import write_training
from pipeline.engines.registry import Registry
from pipeline.heads import head_slices
from pipeline.model.bundling import Bundled, Source, make_bundle
from pipeline.model.checkpoint import load_checkpoint
from pipeline.model.labelled import load_examples
from pipeline.model.plots import plot_run
from pipeline.model.search_space import task_with
from schemas.errors import ConfigError
from schemas.evidence import Evidence
from schemas.fingerprint import digest_of
from schemas.load import load_task
from schemas.manifest import write_atomically
from schemas.prune import Pruning
from schemas.sweep import SWEEP_FILE, Sweeps
from schemas.training import Finetuned, TrainingRun

if TYPE_CHECKING:
    from schemas.bundle import BundleSpec
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)

DONE_FILE = "bundled.json"
_MAX_TAG_CHARS = 5000  # of MLflow


@job(
    "bundle",
    epilog="\b\nExamples:\n"
    "  nightmill bundle tickets --run trial-1\n"
    "  nightmill bundle tickets --run trial-1 compress.prefer=[int8_dynamic]\n",
)
@click.argument("task")
@run_option
@dry_run_option
@overrides_argument
def command(
    context: Context, task: str, run: str | None, dry_run: bool, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Make a bundle of a fine-tuned run of TASK: export, quantize, evaluate and gate.

    The second step of `nightmill train`. Ends with exit code 4 when no variant passes its gates.
    """
    config = load_task(task, context.home, overrides=overrides)
    if dry_run:
        return show_config(config)
    if run is None:
        raise ConfigError("bundle needs --run, the name that `nightmill finetune` answered")
    place = TrainingRun(context.home, config.name, run)
    spec = bundle(config, context, place.finetuned())
    return {
        "run": run,
        "digest": spec.digest,
        "variant": spec.variant,
        "evidence": _evidence(place, spec, context),
    }


def bundle(config: TaskConfig, context: Context, finetuned: Finetuned) -> BundleSpec:
    """Makes the bundle, or answers the one that the same run and settings gave before.

    Raises:
        ArtifactError: there is no checkpoint, or no variant passes its gates.
    """
    config = task_with(config, finetuned.searched)
    place = TrainingRun(context.home, config.name, finetuned.run)
    done = place.folder / DONE_FILE
    if done.exists():
        spec = load_spec(place.bundle)
        if spec.task == config:
            log.info("run %s already has its bundle", place.name)
            return spec
    identity = digest_of([finetuned.fingerprint, config.digest])
    told = step("bundle", config.name, home=context.home, identity=identity).start()
    shutil.rmtree(place.bundle, ignore_errors=True)
    done.unlink(missing_ok=True)
    checkpoint = checkpoint_to_ship(config, context, finetuned)
    model = load_checkpoint(checkpoint, config.train, head_slices(config.heads))
    source = Source(
        training_run=finetuned.run,
        data_digest=finetuned.data_digest,
        cleaner_version=finetuned.cleaner_version,
        special_tokens=finetuned.special_tokens,
        pad_id=finetuned.pad_id,
        near_duplicates=finetuned.near_duplicates,
        conflicting_labels=finetuned.conflicting_labels,
        distilled=finetuned.distilled,
    )
    bundled = make_bundle(
        model, load_examples(place.examples), config, source,
        checkpoint=checkpoint, folder=place.bundle,
    )  # fmt: skip
    _log_to_mlflow(context, place, finetuned, bundled)
    # Last, so that a run that dies while it logs is logged by the next one.
    write_atomically(done, json.dumps(summary(place.name, bundled.spec), indent=2).encode())
    told.complete(partial(lineage_facts.bundled, place, finetuned, bundled.spec))
    figures = partial(write_training, done=finetuned, spec=bundled.spec, at=time.time())
    tell_metrics(config, context.home, "training", figures)
    return bundled.spec


def _evidence(place: TrainingRun, spec: BundleSpec, context: Context) -> dict[str, Any]:
    """What a person decides on, small enough for Airflow to carry."""
    path = place.folder / EVIDENCE_FILE
    if not path.exists():  # of a bundle from before it was kept
        found = gather_evidence(spec, place, place.finetuned(), Registry(context.home))
        found.write(path)
    # By way of JSON text: a figure that is no number becomes a word there, which databases take.
    bounded: dict[str, Any] = json.loads(Evidence.read(path).bounded().model_dump_json())
    return bounded


def summary(run: str, spec: BundleSpec) -> dict[str, Any]:
    """What `nightmill train` answers of a bundle, and what is kept of it in the run's folder."""
    return {
        "run": run,
        "digest": spec.digest,
        "variant": spec.variant,
        "metrics": {name: metrics.model_dump() for name, metrics in spec.metrics.items()},
        "fp32_metrics": {name: metrics.model_dump() for name, metrics in spec.fp32_metrics.items()},
        "choice": spec.choice,
        "gates": [gate.model_dump() for gate in spec.gates],
    }


def _log_to_mlflow(
    context: Context, place: TrainingRun, finetuned: Finetuned, bundled: Bundled
) -> None:
    spec, run_id = bundled.spec, finetuned.mlflow_run_id
    shutil.rmtree(place.page, ignore_errors=True)
    plot_run(bundled, place)
    table = [gate.model_dump() for gate in spec.gates]
    write_atomically(place.page / "gates.json", json.dumps(table, indent=2).encode())
    if bundled.sweeps:
        Sweeps(sweeps=bundled.sweeps).write(place.page / SWEEP_FILE)
    registry = Registry(context.home)
    page = write_evaluation(place, bundled, finetuned, registry)
    registry.log_metrics(run_id, _metrics(bundled))
    tags = {"variant": spec.variant, "digest": spec.digest, "choice": spec.choice[:_MAX_TAG_CHARS]}
    registry.tag(run_id, {f"nightmill.{name}": value for name, value in tags.items()})
    registry.log_files(run_id, place.page, under="page")
    registry.log_file(run_id, page, under="evaluation")
    _log_evidence(registry, place, finetuned, bundled)
    if spec.task.compress.prune is not None:
        log_prune(context.home, spec.task, run_id, Pruning.read(place.folder / PRUNED_FILE))
    log_bundle(context.home, run_id, spec)


def _log_evidence(
    registry: Registry, place: TrainingRun, finetuned: Finetuned, bundled: Bundled
) -> None:
    """The model's page, and what the person who decides will see."""
    spec = bundled.spec
    page, evidence = place.folder / MODEL_PAGE, place.folder / EVIDENCE_FILE
    write_model_page(spec, page, sweeps=bundled.sweeps, notes=_pruned(place, spec.task))
    log.info("model: %s", page)
    gather_evidence(spec, place, finetuned, registry).write(evidence)
    for path in (page, evidence):
        registry.log_file(finetuned.mlflow_run_id, path, under="evaluation")


def _pruned(place: TrainingRun, task: TaskConfig) -> dict[str, str]:
    """What pruning took and cost, as a line of the model's page; nothing without it."""
    if task.compress.prune is None:
        return {}
    done = Pruning.read(place.folder / PRUNED_FILE)
    return {
        "Pruned": f"to {done.flops_share:.0%} of the work; validation macro-F1 "
        f"{done.valid_macro_f1_whole:.4f} whole, {done.valid_macro_f1_cut:.4f} cut, "
        f"{done.valid_macro_f1:.4f} as it ships"
    }


def _metrics(bundled: Bundled) -> dict[str, float]:
    """The figures that runs are compared by in MLflow."""
    spec, metrics = bundled.spec, dict[str, float]()
    for name, head in spec.metrics.items():
        metrics |= {
            f"test.{name}.accuracy": head.accuracy,
            f"test.{name}.macro_f1": head.macro_f1,
            f"test.{name}.ece": head.expected_calibration_error,
            f"test.{name}.macro_f1_fp32": spec.fp32_metrics[name].macro_f1,
        }
        for figure in ("inside_kept", "outside_caught"):
            if (share := getattr(head, figure)) is not None:
                metrics[f"test.{name}.{figure}"] = share
        for lang, found in head.by_lang.items():
            metrics[f"test.{name}.{lang}.rows"] = found.rows
            if found.accuracy is not None and found.macro_f1 is not None:
                metrics[f"test.{name}.{lang}.accuracy"] = found.accuracy
                metrics[f"test.{name}.{lang}.macro_f1"] = found.macro_f1
        for baseline, figures in spec.baseline_metrics.get(name, {}).items():
            for figure in ("accuracy", "macro_f1"):
                metrics[f"baseline.{name}.{baseline}.{figure}"] = figures[figure]
    return metrics | _variant_figures(spec)


def _variant_figures(spec: BundleSpec) -> dict[str, float]:
    """What each variant weighs, how fast it is, and how good on validation records."""
    figures: dict[str, float] = {}
    for variant, facts in spec.facts.items():
        measured = facts.model_dump(exclude_none=True)
        figures |= {f"{variant}.{figure}": value for figure, value in measured.items()}
    for variant, heads in spec.variant_metrics.items():
        for name, head in heads.items():
            figures[f"{variant}.{name}.macro_f1"] = head.macro_f1
            figures[f"{variant}.{name}.ece"] = head.expected_calibration_error
    return figures
