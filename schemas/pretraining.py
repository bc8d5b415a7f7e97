"""What a run of continued pretraining leaves; a file's existence means success."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.errors import ArtifactError
from schemas.manifest import Document

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home


class Prepared(Document):
    """`prepared.json`: sequences and the model to start from are complete.

    `before` are held-out measures of the backbone as it came, see `docs/pretraining.md`.
    `new_tokens` are the added words, most valuable first; `pieces_per_word` of held-out texts and
    the share of their `unknown_words` are under the old and the new vocabulary. `head_steps` is 0
    where the backbone had its head.
    """

    before: dict[str, float]
    new_tokens: tuple[str, ...] = ()
    pieces_per_word: tuple[float, float]
    unknown_words: tuple[float, float]
    head_steps: int = 0
    sequences: int
    tokens: int


class Pretrained(Document):
    """`pretrain.json`: the backbone at `address` is complete, and this is how it was made."""

    run: str
    fingerprint: str
    address: str
    mlflow_run_id: str
    data_digest: str
    texts: dict[str, int]
    rejected: dict[str, int]
    prepared: Prepared
    after: dict[str, float]
    best_epoch: int
    seconds: float


class PretrainingRun:
    """The folder of one run and the files in it."""

    def __init__(self, home: Home, task: str, run: str) -> None:
        self.name = run
        self.folder = home.root / "pretrained" / task / run

    @property
    def start(self) -> Path:
        """The model before its first step, with its tokenizer, as Hugging Face lays it out."""
        return self.folder / "start"

    @property
    def source_tokenizer(self) -> Path:
        """The backbone's tokenizer, or the one learned from the corpus."""
        return self.folder / "source_tokenizer.json"

    @property
    def tokenizer(self) -> Path:
        """The same with the new words."""
        return self.folder / "tokenizer.json"

    @property
    def train(self) -> Path:
        """Sequences to learn from."""
        return self.folder / "train.parquet"

    @property
    def valid(self) -> Path:
        """Held-out sequences."""
        return self.folder / "valid.parquet"

    @property
    def model(self) -> Path:
        """The finished backbone, as Hugging Face lays it out."""
        return self.folder / "model"

    @property
    def prepared(self) -> Path:
        """Written when `start`, `train` and `valid` are."""
        return self.folder / "prepared.json"

    @property
    def done(self) -> Path:
        """Written last."""
        return self.folder / "pretrain.json"

    @property
    def address(self) -> str:
        """What to set `train.backbone` to."""
        return f"path:{self.model}"

    def pretrained(self, fingerprint: str) -> Pretrained | None:
        """What the run of this name gave, None before its end.

        Raises:
            ArtifactError: it was made of other data or settings.
        """
        if not self.done.exists():
            return None
        done = Pretrained.read(self.done)
        if done.fingerprint != fingerprint:
            raise ArtifactError(
                f"pretraining run {self.name!r} exists with other data or settings; "
                f"choose another --run, or leave it out"
            )
        return done
