"""Continued pretraining: a task's unlabelled texts into a backbone that knows them better."""

from __future__ import annotations

import json
import logging
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, dry_run_option, job, overrides_argument, run_option, show_config
from pipeline.engines.registry import Registry
from pipeline.model.backbone import locate, save_tokenizer
from pipeline.model.pretrain.corpus import read_texts, survey_texts, texts_digest
from pipeline.model.pretrain.pieces import PieceTokenizer
from pipeline.model.pretrain.preparing import prepare
from pipeline.model.pretrain.tokenizer_training import train_tokenizer
from pipeline.spool import temporary_spool
from schemas.fingerprint import digest_of, digest_of_file
from schemas.load import load_task
from schemas.pretraining import Prepared, Pretrained, PretrainingRun

if TYPE_CHECKING:
    from pipeline.model.pretrain.corpus import Corpus
    from pipeline.survey import Survey
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)

_SECTIONS = {"data", "contract", "clean", "window", "pretrain"}
_NO_DIFFERENCE = ("workers", "threads_per_worker", "max_failures", "checkpoint_steps")
_CORPUS_FILE = "corpus.json"
# An unknown word is not asked for; where more became known than this share of all, the measures
# before and after are of different words.
_OTHER_WORDS = 0.01


@job(
    "pretrain",
    epilog="\b\nExamples:\n"
    "  nightmill pretrain tickets\n"
    "  nightmill pretrain tickets pretrain.epochs=1 pretrain.new_tokens=500\n"
    "  nightmill pretrain tickets pretrain.objective=simcse pretrain.corpus=archive/*.csv\n",
)
@click.argument("task")
@run_option
@dry_run_option
@overrides_argument
def command(
    context: Context, task: str, run: str | None, dry_run: bool, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Continue pretraining TASK's backbone on its unlabelled texts.

    Ends with the address of a backbone to fine-tune: set train.backbone to it. The same data and
    settings give the same run, which is not trained twice; a run that was killed goes on from its
    last checkpoint.
    """
    config = load_task(task, context.home, overrides=overrides)
    if dry_run:
        return show_config(config)
    done = pretrain(config, context, run=run)
    for line in before_and_after(done):
        log.info(line)
    click.echo(f"train.backbone={done.address}")
    return {
        "run": done.run,
        "address": done.address,
        "before": done.prepared.before,
        "after": done.after,
        "texts": done.texts,
        "new_tokens": len(done.prepared.new_tokens),
        "pieces_per_word": done.prepared.pieces_per_word,
        "unknown_words": done.prepared.unknown_words,
        "mlflow_run_id": done.mlflow_run_id,
    }


def pretrain(config: TaskConfig, context: Context, *, run: str | None = None) -> Pretrained:
    """Pretrains, or answers what the same run gave before.

    Raises:
        ConfigError, DataContractError, ArtifactError: see `read_texts` and `prepare`.
    """
    with temporary_spool(context.home, config.name) as spool:
        found = survey_texts(config, config.pretrain.corpus, context.home, spool=spool)
        for guess in found.guesses:
            log.warning("%s", guess)
        fingerprint = _fingerprint(config, texts_digest(found))
        place = PretrainingRun(context.home, config.name, run or fingerprint[:12])
        if (done := place.pretrained(fingerprint)) is not None:
            log.info("run %s is already pretrained with this data and these settings", place.name)
            return done
        started = time.monotonic()
        kept, prepared = _prepared(config, found, place, fingerprint)
    run_id = _open_run(config, context, place, kept, prepared)
    progress = _train(config, context, place, fingerprint)
    return _finish(
        config, context, place, progress,
        {"fingerprint": fingerprint, "mlflow_run_id": run_id, "prepared": prepared, **kept,
         "seconds": round(time.monotonic() - started, 1)},
    )  # fmt: skip


def _fingerprint(config: TaskConfig, data_digest: str) -> str:
    settings = config.model_dump(mode="json", include=_SECTIONS)
    for key in _NO_DIFFERENCE:
        del settings["pretrain"][key]
    backbone = {"address": config.train.backbone, "pooling": config.train.pooling}
    return digest_of([settings, backbone, _backbone_digest(config.train.backbone), data_digest])


def _backbone_digest(backbone: str) -> list[str]:
    """Of the weights in a folder, which may change under the same address; none for a hub name."""
    folder = Path(locate(backbone))
    return [digest_of_file(path) for path in sorted(folder.glob("*.safetensors"))]


def _prepared(
    config: TaskConfig, found: Survey, place: PretrainingRun, fingerprint: str
) -> tuple[dict[str, Any], Prepared]:
    """Counts of the corpus and what `prepare` left; what a killed run had finished stays."""
    marker = place.folder / _CORPUS_FILE
    if place.prepared.exists() and marker.exists():
        kept = json.loads(marker.read_text())
        if kept.pop("fingerprint") == fingerprint:
            log.info("run %s goes on", place.name)
            return kept, Prepared.read(place.prepared)
    for left in (place.prepared, place.folder / "progress.json"):
        left.unlink(missing_ok=True)
    _discard_working_files(place)
    place.folder.mkdir(parents=True, exist_ok=True)
    corpus = _read(config, found, place)
    kept = {
        "data_digest": corpus.digest,
        "texts": corpus.counts,
        "rejected": dict(sorted(corpus.rejected.items())),
    }
    log.info("%s: texts %s; rows rejected %s", config.name, kept["texts"], kept["rejected"])
    marker.write_text(json.dumps({"fingerprint": fingerprint, **kept}))
    prepared = prepare(config, corpus, place)
    log.info(
        "%d sequences of %d tokens; %d new words, %.3f pieces a word before and %.3f now; "
        "unknown words %.2f %% before and %.2f %% now",
        prepared.sequences, prepared.tokens, len(prepared.new_tokens), *prepared.pieces_per_word,
        *(100 * share for share in prepared.unknown_words),
    )  # fmt: skip
    return kept, prepared


def _read(config: TaskConfig, found: Survey, place: PretrainingRun) -> Corpus:
    """The corpus, cleaned for the backbone's tokenizer or for the one that is learned from it."""
    if (learned := config.pretrain.train_tokenizer) is None:
        save_tokenizer(config.train.backbone, place.source_tokenizer)
        tokenizer = PieceTokenizer(place.source_tokenizer)
        return read_texts(config, found, tokenizer=tokenizer)
    corpus = read_texts(config, found, tokenizer=None)
    size = train_tokenizer(corpus.train, learned, place.source_tokenizer)
    log.info("tokenizer: %s with %d pieces", learned.model, size)
    return corpus


def _open_run(
    config: TaskConfig,
    context: Context,
    place: PretrainingRun,
    kept: dict[str, Any],
    prepared: Prepared,
) -> str:
    """The MLflow run, with settings, data and the measures before."""
    registry = Registry(context.home)
    params = {f"pretrain.{key}": value for key, value in config.pretrain.model_dump().items()}
    run_id = registry.start_run(
        config.name, f"pretrain-{place.name}",
        params={"train.backbone": config.train.backbone, **params},
    )  # fmt: skip
    registry.log_dataset(
        run_id, name=config.name, digest=kept["data_digest"],
        source=config.pretrain.corpus or config.data.incoming, rows=kept["texts"]["train"],
    )  # fmt: skip
    metrics = {f"before.{name}": value for name, value in prepared.before.items()}
    for name in ("pieces_per_word", "unknown_words"):
        metrics[f"before.{name}"], metrics[f"after.{name}"] = getattr(prepared, name)
    metrics |= {f"data.texts.{name}": count for name, count in kept["texts"].items()}
    registry.log_metrics(run_id, metrics)
    return run_id


def _train(
    config: TaskConfig, context: Context, place: PretrainingRun, fingerprint: str
) -> dict[str, Any]:
    """Runs the workers; answers the progress that rank 0 left."""
    from jobs.pretraining import PROGRESS_FILE, run_pretraining  # noqa: PLC0415 - Ray, seconds

    run_pretraining(config, context.home, place, key=fingerprint[:16])
    progress: dict[str, Any] = json.loads((place.folder / PROGRESS_FILE).read_text())
    return progress


def _finish(
    config: TaskConfig,
    context: Context,
    place: PretrainingRun,
    progress: dict[str, Any],
    found: dict[str, Any],
) -> Pretrained:
    registry = Registry(context.home)
    run_id = found["mlflow_run_id"]
    for epoch in progress["history"]:
        numbers = {name: value for name, value in epoch.items() if name != "epoch"}
        registry.log_metrics(run_id, numbers, step=int(epoch["epoch"]))
    best = progress["history"][progress["best_epoch"] - 1]
    prefix = "valid_"
    after = {k.removeprefix(prefix): v for k, v in best.items() if k.startswith(prefix)}
    registry.log_metrics(run_id, {f"after.{name}": value for name, value in after.items()})
    registry.tag(run_id, {"nightmill.backbone": place.address})
    registry.finish_run(run_id)
    done = Pretrained(
        run=place.name, address=place.address, after=after, best_epoch=progress["best_epoch"],
        **found,
    )  # fmt: skip
    if not config.pretrain.new_tokens and after["loss"] >= done.prepared.before["loss"]:
        log.warning("the held-out loss did not fall; try a lower pretrain.learning_rate")
    done.write(place.done)
    _discard_working_files(place)
    return done


def _discard_working_files(place: PretrainingRun) -> None:
    """Takes away what only a run that has to go on needs."""
    for folder in (place.folder / "ray", place.start):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (place.train, place.valid):
        file.unlink(missing_ok=True)


def before_and_after(done: Pretrained) -> list[str]:
    """The held-out measures as lines of the log, and whether they are of the same words."""
    lines = [
        f"held-out {name}: {before:.4g} before, {done.after[name]:.4g} after"
        for name, before in done.prepared.before.items()
    ]
    unknown, still = done.prepared.unknown_words
    if "perplexity" in done.prepared.before and unknown - still > _OTHER_WORDS:
        lines.append(
            f"these do not compare: before, {unknown:.0%} of the words were unknown and not asked "
            f"for, now {still:.0%}; fine-tune from both to compare"
        )
    return lines
