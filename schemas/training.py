"""What the steps of a training run leave for the next one; a file's existence means success."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from schemas.distilled import Distilled
from schemas.errors import ArtifactError
from schemas.manifest import Document
from schemas.searched import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home


class Finetuned(Document):
    """`finetune.json`: the checkpoint is complete, and this is how it was made.

    `near_duplicates` counts records left out by pair of splits (`train-test`), `conflicting_labels`
    texts with more than one label by head, `searched` the settings that `train.search` chose.
    """

    run: str
    fingerprint: str
    mlflow_run_id: str
    data_digest: str
    cleaner_version: str
    special_tokens: tuple[str, ...]
    pad_id: int
    rows: dict[str, int]
    rejected: dict[str, int]
    near_duplicates: dict[str, int] = Field(default_factory=dict)
    conflicting_labels: dict[str, int] = Field(default_factory=dict)
    epochs: int
    best_epoch: int
    valid_macro_f1: float
    searched: Settings = Field(default_factory=dict)
    distilled: Distilled | None = None
    seconds: float


class Registered(Document):
    """`registered.json`: the bundle is this version of this registered model."""

    name: str
    version: str
    digest: str


class TrainingRun:
    """The folder of one training run and the files its steps leave there."""

    def __init__(self, home: Home, task: str, run: str) -> None:
        self.name = run
        self.folder = home.models(task) / run

    @property
    def examples(self) -> Path:
        """Prepared labelled records."""
        return self.folder / "examples.parquet"

    @property
    def settings(self) -> Path:
        """The task as the run was trained with, by which others can load its checkpoint."""
        return self.folder / "task.json"

    @property
    def student(self) -> Path:
        """What a student starts from that is made of another model's layers."""
        return self.folder / "student"

    @property
    def domain_texts(self) -> Path:
        """Prepared texts of the target domain, where the task asks for them."""
        return self.folder / "domain.parquet"

    @property
    def tokenizer(self) -> Path:
        """The backbone's tokenizer."""
        return self.folder / "tokenizer.json"

    @property
    def checkpoint(self) -> Path:
        """The fine-tuned model in PyTorch's form."""
        return self.folder / "checkpoint"

    @property
    def pruned(self) -> Path:
        """The checkpoint made smaller, where the task asks for that."""
        return self.folder / "pruned"

    @property
    def bundle(self) -> Path:
        """The model as it ships."""
        return self.folder / "bundle"

    @property
    def page(self) -> Path:
        """Plots and tables for people."""
        return self.folder / "page"

    @property
    def text_profile(self) -> Path:
        """What the labelled texts are like, as numbers and as a page."""
        return self.folder / "text_profile"

    def finetuned(self) -> Finetuned:
        """What the step `finetune` left.

        Raises:
            ArtifactError: it has not run, or not to its end.
        """
        path = self.folder / "finetune.json"
        if not path.exists():
            raise ArtifactError(
                f"training run {self.name!r} is not fine-tuned; run `nightmill finetune` first"
            )
        return Finetuned.read(path)
