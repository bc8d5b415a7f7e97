"""A bundle on disk made ready to score: digests checked, steps and heads assembled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.clean import Cleaner
from pipeline.engines.language_id import detect_language
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import ScoringFlow, TextFlow
from pipeline.heads import head_slices
from pipeline.inference import ModelInference
from pipeline.special_tokens import GENERIC_TOKENS
from pipeline.validate import Validator
from schemas.bundle import BUNDLE_FILE, MODEL_FILE, TOKENIZER_FILE, BundleSpec
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig


def load_spec(folder: Path) -> BundleSpec:
    """The description of a bundle, its files checked against their digests.

    Raises:
        ArtifactError: a file is missing, cut off or altered.
    """
    spec = BundleSpec.read(folder / BUNDLE_FILE)
    for name, digest in spec.files.items():
        if not (folder / name).is_file():
            raise ArtifactError(f"bundle {folder}: {name} is missing; fetch the bundle again")
        if (got := digest_of_file(folder / name)) != digest:
            raise ArtifactError(
                f"bundle {folder}: {name} has digest {got[:12]}, expected {digest[:12]}; "
                f"it was cut off or altered, fetch the bundle again"
            )
    return spec


def text_flow(task: TaskConfig, tokenizer: BackboneTokenizer | None) -> TextFlow:
    """The steps from validate to window; training and scoring both take them from here.

    Before there is a tokenizer, the steps up to window neutralise the tokens that most have.
    """
    special_tokens = GENERIC_TOKENS if tokenizer is None else tokenizer.special_tokens
    return TextFlow(
        Validator(task.data, task.contract),
        Cleaner(task.clean, special_tokens=special_tokens),
        tokenizer,
        task.window,
        detect_language=detect_language,
    )


def fitting_text_flow(folder: Path, task: TaskConfig) -> tuple[BundleSpec, TextFlow]:
    """A bundle's description and its text steps, once it is sure that they fit the task.

    Raises:
        ArtifactError: the bundle does not fit the task, or its cleaner is not the one installed.
    """
    spec = load_spec(folder)
    spec.check_fits(task)
    text = text_flow(task, BackboneTokenizer(folder / TOKENIZER_FILE))
    if text.cleaner.version != spec.cleaner_version:
        raise ArtifactError(
            f"the model was trained with text cleaner {spec.cleaner_version}, installed is "
            f"{text.cleaner.version}; train again, or install the version it was trained with"
        )
    return spec, text


def scoring_flow(folder: Path, task: TaskConfig, *, threads: int = 1) -> ScoringFlow:
    """The whole flow of one worker from a bundle; `task` gives contract and review thresholds.

    Raises:
        ArtifactError: see `fitting_text_flow`, or the model cannot be loaded.
    """
    spec, text = fitting_text_flow(folder, task)
    encoder = OnnxEncoder(folder / MODEL_FILE, threads=threads)
    # Columns follow the bundle's order of heads; check_fits made sure that it is the task's too.
    heads = head_slices(task.heads, spec.temperatures)
    return ScoringFlow(text, ModelInference(text, encoder, heads))
