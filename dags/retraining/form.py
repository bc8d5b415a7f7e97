"""What a person fills in before a retraining starts.

Airflow's form takes an empty field that may not be null for a missing one and blocks its button,
and a default of null or an enum with null breaks it. So every field is a text, a whole number or a
yes or no, its default is never null, and a text that may be left empty has the type
`["string", "null"]` with "" as its default: the form sends null for what somebody has emptied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import Param

from schemas.task import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTO = "auto"
DEFAULT_APPROVAL_HOURS = 24
MAX_APPROVAL_HOURS = 30 * 24
MAX_REASON_CHARS = 1000
_MAX_ADDRESS_CHARS = 500
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
        "task": Param(
            tasks[0],
            type="string",
            enum=list(tasks),
            title="Task",
            description="Whose model is made.",
            section="What",
        ),
        "labelled": _text(
            "Labelled rows",
            "A file, a pattern, s3:// or hf:// address in place of the task file's data.labelled; "
            "relative ones start at the home. Empty: the task's own.",
            section="What",
        ),
        "reason": _text(
            "Why now",
            "Shown to the person who approves, and kept with the run in MLflow.",
            section="What",
            max_chars=MAX_REASON_CHARS,
        ),
    }


def _recipe() -> dict[str, Param]:
    return {
        "backbone": _text(
            "Backbone", "hf:NAME, path:DIR or package:MODULE/DIR. Empty: the task's own."
        ),
        "epochs": _number("Epochs", "Passes over the labelled rows.", maximum=50),
        "batch_size": _number("Batch size", "Records of one optimizer step.", maximum=4096),
        "learning_rate": Param(
            "",
            type=["string", "null"],
            pattern=_POSITIVE_NUMBER,
            title="Learning rate",
            description="Of the encoder, such as 2e-4. Empty: the task's own.",
            section="Recipe",
        ),
        "frozen_layers": Param(
            -1,
            type="integer",
            minimum=-1,
            maximum=100,
            title="Frozen layers",
            description="The embeddings and so many of the lowest layers stay as pretrained. "
            "-1: the task's own.",
            section="Recipe",
        ),
        "seed": _number("Seed", "Makes a run repeatable, and splits the rows.", maximum=2**31 - 1),
    }


def _distillation() -> dict[str, Param]:
    return {
        "distil": _yes_or_no(
            "Learn from a teacher",
            "The model that is made is a student. Off: only where the task file has a section "
            "distil.",
            section="Distillation",
        ),
        "teacher": _text(
            "Teacher",
            "models:/NAME@ALIAS, models:/NAME/VERSION, run:NAME or path:DIR. Empty: the one that "
            "the task file names.",
            section="Distillation",
        ),
    }


def _compression() -> dict[str, Param]:
    return {
        "prune": _yes_or_no(
            "Prune",
            "Cut out the least important heads and neurons: as compress.prune of the task file "
            "says, a quarter of each where it says nothing. Off: only where the task file asks "
            "for it.",
            section="Compression",
        ),
        "precision": Param(
            AUTO,
            type="string",
            enum=[AUTO, *get_args(Variant)],
            title="Precision",
            description="Only this variant is tried. auto: the first of the task's preference that "
            "passes the gates.",
            section="Compression",
        ),
    }


def _promotion() -> dict[str, Param]:
    return {
        "approval": _yes_or_no(
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


def _text(
    title: str, description: str, *, section: str = "Recipe", max_chars: int = _MAX_ADDRESS_CHARS
) -> Param:
    return Param(
        "",
        type=["string", "null"],
        maxLength=max_chars,
        title=title,
        description=description,
        section=section,
    )


def _number(title: str, description: str, *, maximum: int) -> Param:
    return Param(
        0,
        type="integer",
        minimum=0,
        maximum=maximum,
        title=title,
        description=f"{description} 0: the task's own.",
        section="Recipe",
    )


def _yes_or_no(title: str, description: str, **rest: Any) -> Param:
    default = rest.pop("default", False)
    return Param(default, type="boolean", title=title, description=description, **rest)
