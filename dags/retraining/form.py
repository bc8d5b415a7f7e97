"""What a person fills in before a retraining starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from airflow.sdk import Param

from dags.form_fields import MAX_ADDRESS_CHARS, choice, number, text, yes_or_no
from schemas.task import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTO = "auto"
RECIPE = "Recipe"
DEFAULT_APPROVAL_HOURS = 24
MAX_APPROVAL_HOURS = 30 * 24
MAX_REASON_CHARS = 1000
# Values that fine-tuning cannot work with are refused before it starts; what a form can tell
# alone it tells at once.
_POSITIVE_NUMBER = r"^$|^\s*[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*$"


def form(tasks: Sequence[str]) -> dict[str, Param]:
    """The form's fields, in its order.

    Every field but the first leaves what it is about to the task file, unless it is filled in.
    """
    return _what(tasks) | _recipe() | _distillation() | _compression() | _promotion()


def _what(tasks: Sequence[str]) -> dict[str, Param]:
    return {
        "task": choice("Task", "Whose model is made.", section="What", options=tasks),
        "labelled": text(
            "Labelled rows",
            "A file, a pattern, s3:// or hf:// address in place of the task file's data.labelled; "
            "relative ones start at the home. Empty: the task's own.",
            section="What",
            maxLength=MAX_ADDRESS_CHARS,
        ),
        "reason": text(
            "Why now",
            "Shown to the person who approves, and kept with the run in MLflow.",
            section="What",
            maxLength=MAX_REASON_CHARS,
        ),
    }


def _recipe() -> dict[str, Param]:
    return {
        "backbone": text(
            "Backbone",
            "hf:NAME, path:DIR or package:MODULE/DIR. Empty: the task's own.",
            section=RECIPE,
            maxLength=MAX_ADDRESS_CHARS,
        ),
        "epochs": number("Epochs", "Passes over the labelled rows.", section=RECIPE, maximum=50),
        "batch_size": number(
            "Batch size", "Records of one optimizer step.", section=RECIPE, maximum=4096
        ),
        "learning_rate": text(
            "Learning rate",
            "Of the encoder, such as 2e-4. Empty: the task's own.",
            section=RECIPE,
            pattern=_POSITIVE_NUMBER,
        ),
        "frozen_layers": number(
            "Frozen layers",
            "The embeddings and so many of the lowest layers stay as pretrained.",
            section=RECIPE,
            maximum=100,
            own=-1,
        ),
        "seed": number(
            "Seed",
            "Makes a run repeatable, and splits the rows.",
            section=RECIPE,
            maximum=2**31 - 1,
        ),
    }


def _distillation() -> dict[str, Param]:
    return {
        "distil": yes_or_no(
            "Learn from a teacher",
            "The model that is made is a student. Off: only where the task file has a section "
            "distil.",
            section="Distillation",
        ),
        "teacher": text(
            "Teacher",
            "models:/NAME@ALIAS, models:/NAME/VERSION, run:NAME or path:DIR. Empty: the one that "
            "the task file names.",
            section="Distillation",
            maxLength=MAX_ADDRESS_CHARS,
        ),
    }


def _compression() -> dict[str, Param]:
    return {
        "prune": yes_or_no(
            "Prune",
            "Cut out the least important heads and neurons: as compress.prune of the task file "
            "says, a quarter of each where it says nothing. Off: only where the task file asks "
            "for it.",
            section="Compression",
        ),
        "precision": choice(
            "Precision",
            "Only this variant is tried. auto: the first of the task's preference that passes the "
            "gates.",
            section="Compression",
            options=[AUTO, *get_args(Variant)],
        ),
    }


def _promotion() -> dict[str, Param]:
    return {
        "approval": yes_or_no(
            "Ask a person",
            "Somebody approves before the model becomes the champion. Off: a model that passes its "
            "gates becomes it.",
            section="Promotion",
            default=True,
        ),
        "approval_hours": Param(
            DEFAULT_APPROVAL_HOURS,
            type="integer",
            minimum=1,
            maximum=MAX_APPROVAL_HOURS,
            title="Hours to answer",
            description="After so many hours without an answer the champion stays.",
            section="Promotion",
        ),
    }
