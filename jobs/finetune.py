"""Fine-tuning on Ray Train: labelled rows into a checkpoint."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import pyarrow.parquet as pq

from jobs import lineage_facts
from jobs.diagnosing import diagnose_divergence, diagnose_run
from jobs.lineage import step
from jobs.options import Context, dry_run_option, job, overrides_argument, run_option, show_config
from jobs.run_tree import flat, log_finetune, log_teach
from jobs.teachers import keep_settings
from jobs.teaching import find_teaching, start_run, student_outcome, with_teaching
from pipeline.engines.model_version import CODE_TAG
from pipeline.engines.registry import Registry
from pipeline.engines.software import code_digest
from pipeline.engines.text_profile_page import write_text_page
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.labelled_rows import LabelledData, data_digest, load_labelled, survey_labelled
from pipeline.model.domain_texts import keep_domain, survey_domain, with_domain
from pipeline.model.labelled import save_examples
from pipeline.model.search_space import searched_keys, setting_path, task_with
from pipeline.prompt import word_ids
from pipeline.spool import temporary_spool
from pipeline.tables import quarantine_table
from schemas.errors import ArtifactError, DivergenceError
from schemas.fingerprint import digest_of
from schemas.load import load_task
from schemas.task import TaskConfig
from schemas.training import Finetuned, TrainingRun

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.teaching import Teaching
    from pipeline.survey import Survey
    from schemas.manifest import InputFile
    from schemas.searched import Settings

log = logging.getLogger(__name__)
# How the work is shared out: another share is no other model, to the last bits of a sum.
_WITHOUT_EFFECT = (
    "workers", "threads_per_worker", "max_failures", "strategy", "accumulate_steps",
    "gradient_checkpointing",
)  # fmt: skip
_MAX_REASON_CHARS = 5000  # of MLflow's tags
_TRAINING_SECTIONS = ("data", "contract", "clean", "heads", "window", "train")

reason_option = click.option(
    "--reason", default="", help="Why the run was started; kept with it in MLflow."
)


@job(
    "finetune",
    epilog="\b\nExamples:\n"
    "  nightmill finetune tickets --run trial-1\n"
    "  nightmill finetune tickets train.epochs=2 train.learning_rate=1e-4\n",
)
@click.argument("task")
@run_option
@reason_option
@dry_run_option
@overrides_argument
def command(
    context: Context,
    task: str,
    run: str | None,
    reason: str,
    dry_run: bool,
    overrides: tuple[str, ...],
) -> dict[str, Any]:
    """Fine-tune TASK's backbone on its labelled rows.

    The first step of `nightmill train`. The same data and settings give the same run, which is not
    trained twice; a run that was killed goes on from its last epoch.
    """
    config = load_task(task, context.home, overrides=overrides)
    if dry_run:
        return show_config(config)
    done = finetune(config, context, run=run, reason=reason)
    return {
        "run": done.run,
        "metrics": {"valid_macro_f1": done.valid_macro_f1, "best_epoch": done.best_epoch},
        "rows": done.rows,
        "mlflow_run_id": done.mlflow_run_id,
    }


def finetune(
    config: TaskConfig, context: Context, *, run: str | None = None, reason: str = ""
) -> Finetuned:
    """Fine-tunes, or answers what the same run gave before; `reason` is why it was started.

    Raises:
        ConfigError, DataContractError, ArtifactError: see `load_labelled` and `load_encoder`.
    """
    with temporary_spool(context.home, config.name) as spool:
        return _finetune(config, context, run=run, reason=reason, spool=spool)


@dataclass(frozen=True)
class _Sources:
    """All that a run learns from, found but not read yet."""

    labelled: Survey
    test: Survey | None
    domain: Survey | None
    teaching: Teaching | None

    @property
    def digest(self) -> str:
        """Hash over files and teachers."""
        files = with_domain(data_digest(self.labelled, self.test), self.domain)
        return with_teaching(files, self.teaching)

    @property
    def files(self) -> tuple[InputFile, ...]:
        """All files of all roles."""
        return tuple(file for found in self.by_role.values() if found for file in found.inputs)

    @property
    def by_role(self) -> dict[str, Survey | None]:
        """Files by what they are for."""
        return {"training": self.labelled, "test": self.test, "domain": self.domain}


def _finetune(
    config: TaskConfig, context: Context, *, run: str | None, reason: str, spool: Path
) -> Finetuned:
    started = time.monotonic()
    sources = _Sources(
        *survey_labelled(config, context.home, spool=spool),
        domain=survey_domain(config, context.home, spool=spool),
        teaching=find_teaching(config, context.home, spool=spool),
    )
    fingerprint = _fingerprint(config, sources.digest)
    place = TrainingRun(context.home, config.name, run or fingerprint[:12])
    if (done := _already_done(place, fingerprint)) is not None:
        return done
    told = step("finetune", config.name, home=context.home, identity=fingerprint).start()
    data, tokenizer = _read(config, place, sources)
    registry = Registry(context.home)
    run_id = _open_run(config, place, data, registry, reason=reason)
    taught = None
    if (teaching := sources.teaching) is not None:
        taught = teaching.teach(place, data.examples, tokenizer=tokenizer)
    settings, progress = _learn(
        config, place, registry, run_id, pad_id=tokenizer.pad_id, fingerprint=fingerprint
    )
    diagnosis = diagnose_run(
        task_with(config, settings), place, data,
        history=progress["history"], tokenizer=tokenizer,
    )  # fmt: skip
    registry.tag(run_id, {"diagnosis": diagnosis.tag, "recipe": progress["recipe"]})
    best = progress["best_metric"]
    done = Finetuned(
        run=place.name,
        fingerprint=fingerprint,
        mlflow_run_id=run_id,
        special_tokens=tokenizer.special_tokens,
        pad_id=tokenizer.pad_id,
        epochs=progress["epoch"],
        best_epoch=progress["best_epoch"],
        valid_macro_f1=best,
        searched=settings,
        distilled=None if taught is None else student_outcome(taught, best, registry, run_id),
        seconds=round(time.monotonic() - started, 1),
        **_told_of(data),
    )
    learnt_as = task_with(config, settings)
    log_finetune(context.home, learnt_as, done, sources.by_role)
    if teaching is not None:
        log_teach(context.home, learnt_as, done, teaching)
    # Last, so that a run that dies while it logs is logged by the next one.
    done.write(place.folder / "finetune.json")
    told.complete(partial(lineage_facts.finetuned, config, context.home, sources.files, done))
    return done


def _told_of(data: LabelledData) -> dict[str, Any]:
    """What `Finetuned` keeps of the rows."""
    return {
        "data_digest": data.digest,
        "cleaner_version": data.cleaner_version,
        "rows": data.rows,
        "rejected": dict(sorted(Counter(row.reason.value for row in data.rejected).items())),
        "near_duplicates": dict(data.leakage.counts),
        "conflicting_labels": dict(data.conflicts.counts),
    }


def _read(
    config: TaskConfig, place: TrainingRun, sources: _Sources
) -> tuple[LabelledData, BackboneTokenizer]:
    """Reads all texts and leaves in the run's folder what training workers want of them."""
    place.folder.mkdir(parents=True, exist_ok=True)
    start_run(config, place, sources.teaching)
    tokenizer = BackboneTokenizer(place.tokenizer)
    word_ids(config.heads, tokenizer)  # a word that will not do is told before any text is read
    data = load_labelled(config, sources.labelled, sources.test, tokenizer=tokenizer)
    _keep(config, place, data)
    keep_domain(
        config, sources.domain, place.domain_texts, tokenizer=tokenizer, labelled=data.examples
    )
    log.info(
        "%s: %d train, %d valid, %d test records; %d rejected, %d without a label",
        config.name, *data.rows.values(), len(data.rejected), data.unlabelled,
    )  # fmt: skip
    log.info("left out for being nearly held-out texts: %s", data.leakage)
    log.info("texts with more than one label: %s", data.conflicts)
    return data, tokenizer


def _open_run(
    config: TaskConfig, place: TrainingRun, data: LabelledData, registry: Registry, *, reason: str
) -> str:
    """The MLflow run, with settings and data."""
    run_id = registry.start_run(config.name, place.name, params=_params(config))
    registry.log_dataset(
        run_id, name=config.name, digest=data.digest, source=str(config.data.labelled),
        rows=len(data.examples),
    )  # fmt: skip
    registry.log_metrics(run_id, _data_metrics(data))
    registry.tag(run_id, {CODE_TAG: code_digest()})
    if reason:
        registry.tag(run_id, {"nightmill.reason": reason[:_MAX_REASON_CHARS]})
    registry.log_files(run_id, place.text_profile, under="text_profile")
    return run_id


def _learn(
    config: TaskConfig,
    place: TrainingRun,
    registry: Registry,
    run_id: str,
    *,
    pad_id: int,
    fingerprint: str,
) -> tuple[Settings, dict[str, Any]]:
    """Searches where asked to, trains, logs the epochs; answers settings found and progress.

    Raises:
        DivergenceError: the loss became NaN; the MLflow run says so too.
    """
    try:
        settings = _search(config, place, registry, run_id, pad_id=pad_id, fingerprint=fingerprint)
        config = task_with(config, settings)
        keep_settings(config, place)
        progress = _train(
            config, place, pad_id=pad_id, fingerprint=digest_of([fingerprint, settings])
        )
    except DivergenceError as error:
        registry.tag(run_id, {"diagnosis": diagnose_divergence(place, error).tag})
        registry.finish_run(run_id, failed=True)
        raise
    for epoch in progress["history"]:
        step = int(epoch["epoch"])
        registry.log_metrics(run_id, {k: v for k, v in epoch.items() if k != "epoch"}, step=step)
    return settings, progress


def _fingerprint(config: TaskConfig, digest: str) -> str:
    settings = config.model_dump(mode="json", include=set(_TRAINING_SECTIONS))
    for key in _WITHOUT_EFFECT:
        del settings["train"][key]
    return digest_of([settings, digest])


def _already_done(place: TrainingRun, fingerprint: str) -> Finetuned | None:
    try:
        done = place.finetuned()
    except ArtifactError:
        return None
    if done.fingerprint != fingerprint:
        raise ArtifactError(
            f"training run {place.name!r} exists with other data or settings; "
            f"choose another --run, or leave it out"
        )
    log.info("run %s is already fine-tuned with this data and these settings", place.name)
    return done


def _keep(config: TaskConfig, place: TrainingRun, data: LabelledData) -> None:
    save_examples(data.examples, place.examples)
    rejected = quarantine_table(
        data.rejected, policy=config.quarantine, contract_version=config.contract_version
    )
    pq.write_table(rejected, place.folder / "quarantine.parquet")
    profile = data.profile.document()
    place.text_profile.mkdir(exist_ok=True)
    profile.write(place.text_profile / "profile.json")
    write_text_page(profile, place.text_profile / "text.html", title=f"{config.name} {place.name}")


def _data_metrics(data: LabelledData) -> dict[str, float]:
    """What a run's page in MLflow says of the rows behind it."""
    counts = {
        "data.rows": data.rows,
        "data.near_duplicates": data.leakage.counts,
        "data.conflicting_labels": data.conflicts.counts,
    }
    return {f"{name}.{key}": n for name, by_key in counts.items() for key, n in by_key.items()}


def _search(
    config: TaskConfig,
    place: TrainingRun,
    registry: Registry,
    run_id: str,
    *,
    pad_id: int,
    fingerprint: str,
) -> Settings:
    """What `train.search` chooses; nothing where the task file does not ask for a search."""
    if (search := config.train.search) is None:
        return {}
    from jobs.searching import log_search, search_recipe  # noqa: PLC0415 - Ray, as below

    found = search_recipe(config, place, search=search, pad_id=pad_id, fingerprint=fingerprint)
    log_search(found, place, registry, run_id)
    return found.settings


def _train(
    config: TaskConfig, place: TrainingRun, *, pad_id: int, fingerprint: str
) -> dict[str, Any]:
    """Runs the training workers; answers the progress that rank 0 left."""
    from jobs.training import run_training  # noqa: PLC0415 - Ray, seconds to import

    run_training(config, place, pad_id=pad_id, fingerprint=fingerprint)
    progress: dict[str, Any] = json.loads((place.folder / "progress.json").read_text())
    shutil.rmtree(place.folder / "ray", ignore_errors=True)
    return progress


def _params(config: TaskConfig) -> dict[str, Any]:
    """Settings as MLflow parameters; what a search will choose is logged when it has."""
    search = config.train.search
    later = () if search is None else searched_keys(config.train, search, distil=config.distil)[0]
    names = {setting_path(key) for key in later}
    settings = flat(config, tuple(TaskConfig.model_fields))
    return {name: value for name, value in settings.items() if name not in names}
