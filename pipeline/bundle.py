"""A bundle on disk made ready to score: digests checked, steps and heads assembled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pipeline.batch_plan import (
    ONE_A_CALL,
    BatchTable,
    batch_table,
    check_batching,
    depends_on_neighbours,
)
from pipeline.cascade import NO_SAVING, CascadeInference, Saving
from pipeline.clean import Cleaner
from pipeline.engines.calibration import calibrate, known_calibration
from pipeline.engines.gpu_session import gpu_encoder
from pipeline.engines.host import describe_host
from pipeline.engines.language_id import detect_language
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import ScoringFlow, TextFlow
from pipeline.heads import head_slices
from pipeline.inference import ModelInference
from pipeline.prompt import prompted
from pipeline.score_cache import CachedInference, ScoreCache, cache_key
from pipeline.special_tokens import GENERIC_TOKENS
from pipeline.validate import Validator
from schemas.bundle import (
    BUNDLE_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    VERIFICATION_FILE,
    BundleSpec,
)
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.inference import Inference
    from schemas.task import TaskConfig, WindowPooling

log = logging.getLogger(__name__)

# The last batch of each width is filled up: the more windows at once, the fewer of these.
_GPU_BATCHES_AT_ONCE = 16


def load_spec(folder: Path) -> BundleSpec:
    """The description of a bundle, its files checked against their digests.

    Raises:
        ArtifactError: a file is missing, cut off or altered.
    """
    spec = BundleSpec.read(folder / BUNDLE_FILE)
    beside = {} if spec.verification is None else {VERIFICATION_FILE: spec.verification}
    for name, digest in (spec.files | beside).items():
        if not (folder / name).is_file():
            raise ArtifactError(f"bundle {folder}: {name} is missing; fetch the bundle again")
        if (got := digest_of_file(folder / name)) != digest:
            raise ArtifactError(
                f"bundle {folder}: {name} has digest {got[:12]}, expected {digest[:12]}; "
                f"it was cut off or altered, fetch the bundle again"
            )
    return spec


def text_flow(
    task: TaskConfig,
    tokenizer: BackboneTokenizer | None,
    *,
    window_pooling: WindowPooling | None = None,
) -> TextFlow:
    """The steps from validate to window; training and scoring both take them from here.

    Before there is a tokenizer, the steps up to window neutralise the tokens that most have.
    `window_pooling` is a model's, where it may be another than the task file's.

    Raises:
        ConfigError: the tokenizer cannot write the prompt of the task's cloze heads.
    """
    pooling = window_pooling or task.train.window_pooling
    special_tokens = GENERIC_TOKENS if tokenizer is None else tokenizer.special_tokens
    return TextFlow(
        Validator(task.data, task.contract),
        Cleaner(task.clean, special_tokens=special_tokens),
        None if tokenizer is None else prompted(tokenizer, task.prompt),
        task.window,
        detect_language=detect_language,
        first_window_only=pooling == "first",
    )


def fitting_text_flow(folder: Path, task: TaskConfig) -> tuple[BundleSpec, TextFlow]:
    """A bundle's description and its text steps, once it is sure that they fit the task.

    Raises:
        ArtifactError: the bundle does not fit the task, or its cleaner is not the one installed.
    """
    spec = load_spec(folder)
    spec.check_fits(task)
    text = text_flow(
        # Windows have the prompt that the model was trained with, or none.
        task.model_copy(update={"heads": spec.task.heads}),
        BackboneTokenizer(folder / TOKENIZER_FILE),
        window_pooling=spec.task.train.window_pooling,
    )
    if text.cleaner.version != spec.cleaner_version:
        raise ArtifactError(
            f"the model was trained with text cleaner {spec.cleaner_version}, installed is "
            f"{text.cleaner.version}; train again, or install the version it was trained with"
        )
    return spec, text


def scoring_flow(
    folder: Path,
    task: TaskConfig,
    *,
    threads: int = 1,
    plans: Path | None = None,
    saving: Saving = NO_SAVING,
) -> ScoringFlow:
    """The whole flow of one worker from a bundle; `task` gives contract and review thresholds.

    `plans` is the folder where this host's calibration was put, see `calibrate_host`: without one,
    each window is a call of its own. The scores are the same either way, and with a cache.

    Raises:
        ArtifactError: see `fitting_text_flow`, or the model cannot be loaded.
        ConfigError: `score.batching` or `score.device` does not suit the bundle or this host.
    """
    spec, text = fitting_text_flow(folder, task)
    inference = _inference(folder, task, spec, text, threads=threads, plans=plans, saving=saving)
    if (cascade := saving.cascade) is not None:
        small, small_text = fitting_text_flow(cascade.bundle, task)
        first = _inference(
            cascade.bundle, task, small, small_text, threads=threads, plans=plans, saving=saving
        )
        inference = CascadeInference(first, inference, cascade.ref, head_slices(task.heads))
    return ScoringFlow(text, inference)


def _inference(
    folder: Path,
    task: TaskConfig,
    spec: BundleSpec,
    text: TextFlow,
    *,
    threads: int,
    plans: Path | None,
    saving: Saving,
) -> Inference:
    model, heads = model_inference(folder, task, spec, text, threads=threads, plans=plans)
    if saving.cache is None:
        return model
    key = cache_key(spec.digest, device=task.score.device, host=describe_host())
    cache = ScoreCache(
        saving.cache / key, heads, night=saving.night, max_bytes=task.score.cache.max_bytes
    )
    return CachedInference(model, cache)


def model_inference(
    folder: Path,
    task: TaskConfig,
    spec: BundleSpec,
    text: TextFlow,
    *,
    threads: int = 1,
    plans: Path | None = None,
) -> tuple[ModelInference, tuple[HeadSlice, ...]]:
    """Inference by a bundle's model alone, and the heads that it answers.

    Raises:
        ArtifactError: the model cannot be loaded.
        ConfigError: `score.batching` or `score.device` does not suit the bundle or this host.
    """
    # Columns follow the bundle's order of heads; check_fits made sure that it is the task's too.
    heads = head_slices(task.heads, spec.temperatures, scopes=spec.scopes)
    pooling = spec.task.train.window_pooling
    if task.score.device == "gpu":
        tokens = _GPU_BATCHES_AT_ONCE * task.score.max_batch_tokens
        gpu = gpu_encoder(folder, task)
        inference = ModelInference(
            text, gpu, heads, pooling=pooling, tokens_at_once=tokens, groups_ahead=1
        )
        return inference, heads
    check_batching(task.score.batching, spec.variant)
    known = known_calibration(plans, spec, threads=threads) if plans else None
    batches = ONE_A_CALL if known is None else batch_table(known, task.score.batching)
    encoder = OnnxEncoder(folder / MODEL_FILE, threads=threads, batches=batches)
    return ModelInference(text, encoder, heads, pooling=pooling), heads


def calibrate_host(folder: Path, task: TaskConfig, *, plans: Path, threads: int = 1) -> BatchTable:
    """How windows go into calls on this host, measured if need be; workers read it from `plans`.

    Raises:
        ArtifactError: the bundle is damaged.
        ConfigError: `score.batching` does not suit the bundle or this host.
    """
    spec = load_spec(folder)
    check_batching(task.score.batching, spec.variant)
    wanted = [name for name, head in task.heads.items() if head.outside is not None]
    if without := [name for name in wanted if name not in spec.scopes]:
        log.warning(
            "the model has no rule for texts that no label of %s fits, and sends none of them to "
            "people: train again", ", ".join(without),
        )  # fmt: skip
    if (
        task.score.device == "gpu"
        or task.score.batching == "one"
        or depends_on_neighbours(spec.variant)
    ):
        return ONE_A_CALL
    found = calibrate(folder, spec, task, plans=plans, threads=threads)
    table = batch_table(found, task.score.batching)
    log.info("batching: %s", table)
    return table
