"""A small model measured before the task's model: from which confidence on it may answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, dry_run_option, job, overrides_argument, show_config
from jobs.saving import cascade_path, fetch_small
from pipeline.bundle import fitting_text_flow, load_spec, model_inference
from pipeline.engines.host import usable_cpus
from pipeline.engines.registry import Registry
from pipeline.flow import Prepared
from pipeline.heads import head_slices
from pipeline.model.cascade_thresholds import choose_thresholds, head_outcomes, measure
from pipeline.model.labelled import Example, load_examples
from pipeline.rows import Record
from schemas.cascade import CascadeSpec
from schemas.errors import ArtifactError, ConfigError
from schemas.load import load_task
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.inference import Inferred
    from pipeline.model.cascade_thresholds import HeadOutcome
    from schemas.bundle import BundleSpec
    from schemas.home import Home
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)


@job(
    "cascade",
    epilog="\b\nExamples:\n"
    "  nightmill cascade tickets score.cascade.model=models:/tickets/4\n"
    "  nightmill cascade tickets score.cascade.max_metric_loss=0.01\n",
)
@click.argument("task")
@dry_run_option
@overrides_argument
def command(
    context: Context, task: str, dry_run: bool, overrides: tuple[str, ...]
) -> dict[str, Any]:
    """Measure how much a small model may answer for TASK's model, and from which confidence on.

    Both answer the validation texts of the large one's training run. The thresholds keep the
    macro-F1 of both together within score.cascade.max_metric_loss of the large one alone. Ends
    with exit code 4 where the small model may answer nothing.
    """
    config = load_task(task, context.home, overrides=overrides)
    if dry_run:
        return show_config(config)
    return measure_cascade(config, context)


def measure_cascade(config: TaskConfig, context: Context) -> dict[str, Any]:
    """Measures, and writes what `nightmill score` then goes by.

    Raises:
        ArtifactError: a model does not fit, its texts are gone, or the small one is too weak.
        ConfigError: the task has no cascade.
    """
    home, registry = context.home, Registry(context.home)
    large, large_bundle = registry.fetch(config.model_uri)
    large_spec, _ = fitting_text_flow(large_bundle, config)
    small, small_bundle = fetch_small(config, registry, large_spec)
    _check_same_splits(load_spec(small_bundle), large_spec)
    examples = _examples(home, config, large_spec)
    by_split = {
        split: _outcomes(config, [e for e in examples if e.split == split],
                         small=small_bundle, large=large_bundle)
        for split in ("valid", "test")
    }  # fmt: skip
    if config.score.cascade is None or by_split["valid"] is None:
        raise ConfigError("a cascade is measured on validation texts, and there are none")
    limit = config.score.cascade.max_metric_loss
    thresholds = choose_thresholds(by_split["valid"], max_metric_loss=limit)
    test = by_split["test"]
    found = CascadeSpec(
        small=small, large=large, max_metric_loss=limit, thresholds=thresholds,
        valid=measure(by_split["valid"], thresholds),
        test=measure(test, thresholds) if test else None,
    )  # fmt: skip
    _tell(found)
    path = cascade_path(home, config.name, small=small, large=large)
    found.write(path)
    return {"cascade": str(path), **found.model_dump(mode="json")}


def _tell(found: CascadeSpec) -> None:
    for split, measured in (("validation", found.valid), ("test", found.test)):
        if measured is not None:
            log.info(
                "%s: the small model answers %.1f %% of %d texts, macro-F1 %.4f below the large "
                "one alone", split, 100 * measured.share_of_small, measured.rows, measured.loss,
            )  # fmt: skip
    if found.test is not None and found.test.loss > found.max_metric_loss:
        log.warning(
            "on test texts, on which nothing was chosen, the loss is more than the agreed %.4f",
            found.max_metric_loss,
        )


def _check_same_splits(small: BundleSpec, large: BundleSpec) -> None:
    """Texts that one model was trained on must not be those that the other is measured on."""
    for name in ("seed", "valid_fraction", "test_fraction"):
        mine, theirs = getattr(small.task.train, name), getattr(large.task.train, name)
        if mine != theirs:
            raise ArtifactError(
                f"the small model was trained with train.{name}={mine}, the large one with "
                f"{theirs}: it may have seen the validation texts; train it with the same"
            )
    if (small.task.data.test is None) != (large.task.data.test is None):
        raise ArtifactError(
            "only one of the two models was trained beside a test set of its own, so that their "
            "splits differ; train the small one on the same data"
        )


def _examples(home: Home, config: TaskConfig, large: BundleSpec) -> list[Example]:
    path = TrainingRun(home, config.name, large.training_run).examples
    if not path.exists():
        raise ArtifactError(
            f"the validation texts of training run {large.training_run} are not in {path}; run "
            f"this in the home that the model was trained in"
        )
    return load_examples(path)


def _outcomes(
    config: TaskConfig, examples: Sequence[Example], *, small: Path, large: Path
) -> dict[str, HeadOutcome] | None:
    if not examples:
        return None
    return head_outcomes(
        examples,
        _answers(config, examples, small),
        _answers(config, examples, large),
        head_slices(config.heads),
    )


def _answers(config: TaskConfig, examples: Sequence[Example], bundle: Path) -> list[Inferred]:
    """What a bundle answers, through the steps that score at night."""
    spec, text = fitting_text_flow(bundle, config)
    inference, _ = model_inference(bundle, config, spec, text, threads=usable_cpus())
    return inference.infer([_prepared(example) for example in examples])


def _prepared(example: Example) -> Prepared:
    return Prepared(
        record=Record(example.record_id, "", 0, example.texts, {}, b""),
        texts=example.texts,
        text_hash=example.text_hash,
        lang=example.lang,
        flags=(),
        truncated=False,
    )
