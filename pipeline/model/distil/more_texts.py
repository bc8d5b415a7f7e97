"""Texts that the teachers alone answer: unlabelled ones, and changed copies of training texts."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.bundle import text_flow
from pipeline.leakage import without_leaks
from pipeline.model.distil.augment import changed_texts, hash_of
from pipeline.model.labelled import Example, split_of
from pipeline.prompt import prompted
from pipeline.read import read_shard
from pipeline.rows import Rejected
from pipeline.survey import Survey, find_inputs, survey
from pipeline.window import make_windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.engines.tokenizer import BackboneTokenizer
    from schemas.distil import AugmentConfig
    from schemas.home import Home
    from schemas.task import TaskConfig

log = logging.getLogger(__name__)
_ROWS_PER_SHARD = 100_000


def survey_unlabelled(task: TaskConfig, address: str, home: Home, *, spool: Path) -> Survey:
    """The files of `distil.unlabelled`, of all dates.

    Raises:
        DataContractError: there are none, or they lack a text column.
        ConfigError, TransientError: see `find_inputs`.
    """
    return survey(
        find_inputs(address.replace("{date}", "*"), home, date=None),
        data=_of_texts(task).data,
        home=home,
        rows_per_shard=_ROWS_PER_SHARD,
        spool=spool,
    )


def unlabelled_examples(
    task: TaskConfig,
    found: Survey,
    labelled: Sequence[Example],
    *,
    tokenizer: BackboneTokenizer,
    limit: int,
) -> list[Example]:
    """Distinct texts without a target, at most `limit` of them, chosen by their hash.

    Left out are those that stand nearly in valid or test, would fall there, or are labelled.
    """
    flow = text_flow(_of_texts(task), tokenizer)
    seen = {example.text_hash for example in labelled}
    made, no_targets = [], dict.fromkeys(task.heads)
    for shard in found.shards:
        for item in flow.prepare(read_shard(shard)):
            if isinstance(item, Rejected) or item.text_hash in seen:
                continue
            seen.add(item.text_hash)
            if split_of(item.texts, task.train, has_test=task.data.test is not None) != "train":
                continue
            made.append(
                Example(
                    record_id=f"unlabelled:{item.text_hash}", text_hash=item.text_hash,
                    split="train", lang=item.lang, texts=item.texts,
                    windows=flow.windows(item).windows, targets=no_targets,
                )
            )  # fmt: skip
    made = sorted(made, key=lambda example: example.text_hash)[:limit]
    held_out = [example for example in labelled if example.split != "train"]
    kept, _ = without_leaks([*held_out, *made], similarity=task.train.near_duplicate_similarity)
    return [example for example in kept if example.split == "train"]


def augmented_examples(
    task: TaskConfig,
    train: Sequence[Example],
    config: AugmentConfig,
    *,
    tokenizer: BackboneTokenizer,
) -> list[Example]:
    """Changed copies of training records, without targets; the same for the same `train.seed`."""
    reader, seen = prompted(tokenizer, task.prompt), {example.text_hash for example in train}
    first_only = task.train.window_pooling == "first"
    made = []
    for example, number, texts in _copies(train, config, seed=task.train.seed):
        if (text_hash := hash_of(texts)) in seen:
            continue
        seen.add(text_hash)
        made_windows = make_windows(
            reader.tokenize(list(texts)), texts,
            template=reader.pair if len(texts) == 2 else reader.single, config=task.window,
        ).windows  # fmt: skip
        made.append(
            replace(
                example, record_id=f"{example.record_id}#{number}", text_hash=text_hash,
                texts=texts, windows=made_windows[: 1 if first_only else None],
                targets=dict.fromkeys(task.heads),
            )
        )  # fmt: skip
    return made


def _copies(
    train: Sequence[Example], config: AugmentConfig, *, seed: int
) -> Iterator[tuple[Example, int, tuple[str, ...]]]:
    for example in train:
        for number in range(1, config.copies + 1):
            texts = changed_texts(example.texts, config, key=f"{seed}:{example.record_id}:{number}")
            if texts is not None:
                yield example, number, texts


def _of_texts(task: TaskConfig) -> TaskConfig:
    """The task, asked for nothing but its texts: a record may come again on another date."""
    data = task.data.model_copy(update={"id_column": None})
    contract = task.contract.model_copy(update={"columns": {}})
    return task.model_copy(update={"data": data, "contract": contract})
