"""Texts that the teachers alone answer: unlabelled ones, and changed copies of training texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.bundle import text_flow
from pipeline.flow import hash_of, windows_of
from pipeline.leakage import without_leaks
from pipeline.model.distil.augment import changed_texts
from pipeline.model.labelled import Example, split_of
from pipeline.model.pretrain.corpus import texts_alone
from pipeline.prompt import prompted
from pipeline.read import read_shard
from pipeline.rows import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.survey import Survey
    from schemas.distil import AugmentConfig
    from schemas.task import TaskConfig


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
    flow = text_flow(texts_alone(task), tokenizer)
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
        windows = windows_of(texts, reader, task.window).windows
        made.append(
            replace(
                example, record_id=f"{example.record_id}#{number}", text_hash=text_hash,
                texts=texts, windows=windows[: 1 if first_only else None],
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
