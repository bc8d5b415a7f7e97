"""What a step of the pipeline read and wrote, in the terms that lineage tools share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

EventKind = Literal["START", "COMPLETE", "FAIL"]
FILES = "file"
MODELS = "mlflow"  # namespace of registered models
REGISTERED = "models:/"


@dataclass(frozen=True, slots=True)
class Check:
    """One rule that data was held against, and whether it passed."""

    rule: str
    passed: bool
    column: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """Data at a place: a path, an address, or `models:/NAME/VERSION`.

    `columns` are pairs of name and type, `sources` by column those of `inputs` that it is made
    from; what is None or empty is not known.
    """

    place: str
    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None
    version: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def is_model(self) -> bool:
        """Whether the registry has it."""
        return self.place.startswith(REGISTERED)

    @property
    def name(self) -> tuple[str, str]:
        """Namespace and name, by OpenLineage's naming rules; never with a password.

        https://openlineage.io/docs/spec/naming
        """
        if self.is_model:
            return MODELS, self.place.removeprefix(REGISTERED)
        if "://" not in self.place:
            return FILES, self.place
        parts = urlsplit(self.place)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}", parts.path.strip("/") or "/"


@dataclass(frozen=True, slots=True)
class DataFlow:
    """What went into a step and what came out of it; `tags` are further facts of the run.

    `at` is when that was, None for now.
    """

    inputs: tuple[DataSet, ...] = ()
    outputs: tuple[DataSet, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class StepRun:
    """One run of a step: equal `run_id`s are the same work, whoever does it and how often.

    `date` is the partition's, in ISO form, empty for a step that has none.
    """

    step: str
    task: str
    run_id: str
    date: str = ""


@dataclass(frozen=True, slots=True)
class Parent:
    """The run that started this one."""

    run_id: str
    namespace: str
    name: str
