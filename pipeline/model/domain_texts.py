"""Unlabelled texts of the domain where a model will work, read as the model reads the labelled."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from pipeline.bundle import text_flow
from pipeline.model.labelled import Example, load_examples, save_examples
from pipeline.model.pretrain.corpus import survey_texts, texts_alone, texts_digest
from pipeline.read import read_shard
from pipeline.rows import Rejected
from schemas.errors import DataContractError
from schemas.fingerprint import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.survey import Survey
    from pipeline.window import Window
    from schemas.home import Home
    from schemas.task import TaskConfig, TrainConfig

log = logging.getLogger(__name__)


def survey_domain(task: TaskConfig, home: Home, *, spool: Path) -> Survey | None:
    """The files of `train.domain_adversarial.corpus`, or of `data.incoming`; None without it.

    Raises:
        DataContractError, ConfigError, TransientError: see `survey_texts`.
    """
    if task.train.domain_adversarial is None:
        return None
    return survey_texts(task, task.train.domain_adversarial.corpus, home, spool=spool)


def with_domain(digest: str, found: Survey | None) -> str:
    """The digest of data that these files are learned from as well."""
    return digest if found is None else digest_of([digest, texts_digest(found)])


def keep_domain(
    task: TaskConfig,
    found: Survey | None,
    path: Path,
    *,
    tokenizer: BackboneTokenizer,
    labelled: Iterable[Example],
) -> None:
    """Writes the texts that training workers read beside the labelled ones, if there are to be any.

    Raises:
        DataContractError: see `read_domain`.
    """
    config = task.train.domain_adversarial
    if found is not None and config is not None:
        texts = read_domain(
            task, found, tokenizer=tokenizer, max_texts=config.max_texts, labelled=labelled
        )
        save_examples(texts, path)


def load_domain(path: Path, config: TrainConfig) -> list[Window]:
    """The windows that a step may draw: of each text as many as of a labelled record."""
    if config.domain_adversarial is None:
        return []
    limit = 1 if config.window_pooling == "first" else config.max_windows_per_record
    return [window for text in load_examples(path) for window in text.windows[:limit]]


def read_domain(
    task: TaskConfig,
    found: Survey,
    *,
    tokenizer: BackboneTokenizer,
    max_texts: int,
    labelled: Iterable[Example],
) -> list[Example]:
    """Distinct texts of the files, cleaned and in windows, without labels and without the text.

    Of more than `max_texts` those with the lowest hashes are taken: a choice that new texts hardly
    change. How many of them stand among the held-out ones of `labelled` is logged.

    Raises:
        DataContractError: no text is left.
    """
    flow = text_flow(texts_alone(task), tokenizer)
    rejected: Counter[str] = Counter()
    texts: dict[str, Example] = {}
    for shard in found.shards:
        for item in flow.prepare(read_shard(shard)):
            if isinstance(item, Rejected):
                rejected[item.reason.value] += 1
            elif item.text_hash not in texts:
                texts[item.text_hash] = Example(
                    record_id=item.text_hash, text_hash=item.text_hash, split="train",
                    lang=item.lang, texts=(), windows=flow.windows(item).windows, targets={},
                )  # fmt: skip
    if not texts:
        raise DataContractError(
            f"train.domain_adversarial: no text of the target domain is left, {rejected.total()} "
            f"rows were rejected ({dict(rejected)}); set its corpus to files with texts"
        )
    chosen = [texts[key] for key in sorted(texts)[:max_texts]]
    held_out = {example.text_hash for example in labelled if example.split != "train"}
    log.info(
        "target domain: %d of %d texts, %d rows rejected; %d of the texts are held out of the "
        "labelled ones, and are read without their labels",
        len(chosen), len(texts), rejected.total(),
        sum(example.text_hash in held_out for example in chosen),
    )  # fmt: skip
    return chosen
