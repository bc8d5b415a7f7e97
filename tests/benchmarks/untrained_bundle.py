"""A bundle around a model whose heads nobody trained: enough to measure how fast it scores."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pipeline.clean import Cleaner
from pipeline.engines.host import describe_host
from pipeline.engines.tokenizer import BackboneTokenizer
from schemas.bundle import BUNDLE_FILE, MODEL_FILE, TOKENIZER_FILE, BundleSpec, HeadMetrics
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig, Variant

_NOT_MEASURED = HeadMetrics(
    rows=0, accuracy=0.0, accuracy_interval=(0.0, 0.0), macro_f1=0.0,
    macro_f1_interval=(0.0, 0.0), expected_calibration_error=0.0, majority_accuracy=0.0,
)  # fmt: skip


def write_bundle(
    folder: Path, task: TaskConfig, variant: Variant, *, model: Path, tokenizer: Path
) -> Path:
    """Copies model and tokenizer into the new folder `folder` and describes them there."""
    folder.mkdir()
    shutil.copyfile(model, folder / MODEL_FILE)
    shutil.copyfile(tokenizer, folder / TOKENIZER_FILE)
    special_tokens = BackboneTokenizer(tokenizer).special_tokens
    BundleSpec(
        task=task,
        label_digests={name: labels.digest for name, labels in task.label_sets.items()},
        temperatures=dict.fromkeys(task.heads, 1.0),
        cleaner_version=Cleaner(task.clean, special_tokens=special_tokens).version,
        special_tokens=special_tokens,
        variant=variant,
        files={name: digest_of_file(folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)},
        backbone=task.train.backbone,
        training_run="none",
        data_digest="0" * 64,
        metrics=dict.fromkeys(task.heads, _NOT_MEASURED),
        gates=(),
        host=describe_host(),
    ).write(folder / BUNDLE_FILE)
    return folder
