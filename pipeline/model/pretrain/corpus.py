"""A task's unlabelled texts, through the same readers and cleaning as at night."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.bundle import text_flow
from pipeline.model.labelled import split_of
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.survey import Survey, find_inputs, survey
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.engines.tokenizer import BackboneTokenizer
    from schemas.home import Home
    from schemas.task import TaskConfig

_ROWS_PER_SHARD = 100_000
_KEY_HEX_DIGITS = 15  # a key fits into a signed 64-bit integer


@dataclass(frozen=True)
class Text:
    """One distinct text, in parts where the task has several columns; equal texts, equal keys."""

    key: int
    parts: tuple[str, ...]


@dataclass
class Corpus:
    """Distinct texts to learn from and to measure on, and what became of all other rows."""

    digest: str
    train: list[Text] = field(default_factory=list)
    valid: list[Text] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    unmeasured: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Texts by what became of them; `unmeasured` are held out, but over the bound."""
        return {
            "train": len(self.train),
            "valid": len(self.valid),
            "unmeasured": self.unmeasured,
            "repeated": self.repeated,
        }


def survey_texts(task: TaskConfig, address: str | None, home: Home, *, spool: Path) -> Survey:
    """The files at `address`, else those of `data.incoming`, of all dates.

    Raises:
        DataContractError: there are none, or they lack a text column.
        ConfigError, TransientError: see `find_inputs`.
    """
    pattern = (address or task.data.incoming).replace("{date}", "*")
    return survey(
        find_inputs(pattern, home, date=None),
        data=texts_alone(task).data,
        home=home,
        rows_per_shard=_ROWS_PER_SHARD,
        spool=spool,
    )


def texts_digest(found: Survey) -> str:
    """Hash over the bytes of all files."""
    return digest_of([file.sha256 for file in found.inputs])


def read_texts(task: TaskConfig, found: Survey, *, tokenizer: BackboneTokenizer | None) -> Corpus:
    """The corpus of the files; each distinct text once, held out by a hash of it.

    With the seed of `train`, and `pretrain.valid_fraction` no less than `train.test_fraction`, the
    texts that fine-tuning tests on are among the held-out ones. `tokenizer` None neutralises the
    special tokens that most vocabularies have.

    Raises:
        DataContractError: no text is left for one of both.
    """
    # Texts are learned from as they are, without a prompt, which not every tokenizer can write.
    heads = {name: head.model_copy(update={"cloze": None}) for name, head in task.heads.items()}
    flow = text_flow(texts_alone(task).model_copy(update={"heads": heads}), tokenizer)
    settings = {"seed": task.pretrain.seed, "valid_fraction": task.pretrain.valid_fraction}
    split = task.train.model_copy(update=settings)
    corpus = Corpus(texts_digest(found))
    seen: set[str] = set()
    for shard in found.shards:
        for item in flow.prepare(read_shard(shard)):
            if isinstance(item, Rejected):
                corpus.rejected[item.reason.value] += 1
            elif item.text_hash in seen:
                corpus.repeated += 1
            else:
                seen.add(item.text_hash)
                text = Text(int(item.text_hash[:_KEY_HEX_DIGITS], 16), item.texts)
                held_out = split_of(item.texts, split, has_test=True) == "valid"
                (corpus.valid if held_out else corpus.train).append(text)
    _bound(corpus, task.pretrain.max_valid_texts)
    return _checked(corpus)


def texts_alone(task: TaskConfig) -> TaskConfig:
    """The task, asked for nothing but its texts.

    A record that comes again on another date is no fault here, nor is another column's value.
    """
    data = task.data.model_copy(update={"id_column": None})
    contract = task.contract.model_copy(update={"columns": {}})
    return task.model_copy(update={"data": data, "contract": contract})


def _bound(corpus: Corpus, limit: int) -> None:
    """The texts with the lowest keys are measured: a choice that new texts hardly change."""
    corpus.valid.sort(key=lambda text: text.key)
    corpus.unmeasured = max(0, len(corpus.valid) - limit)
    del corpus.valid[limit:]


def _checked(corpus: Corpus) -> Corpus:
    if not corpus.train or not corpus.valid:
        rejected = sum(corpus.rejected.values())
        raise DataContractError(
            f"{len(corpus.train)} texts to learn from and {len(corpus.valid)} held out "
            f"({rejected} rows rejected, {corpus.repeated} repeated): need both; "
            f"add texts or change pretrain.valid_fraction"
        )
    return corpus
