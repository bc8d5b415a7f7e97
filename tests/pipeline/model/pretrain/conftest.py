"""A small corpus with a grammar, and what is made of it for the tiny backbone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.model.pretrain.corpus import Corpus, Text
from pipeline.model.pretrain.pieces import PieceTokenizer
from schemas.pretrain import PretrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from schemas.task import TaskConfig

WHO = ("i", "the invoice", "my card", "the app", "my parcel")
DOES = ("is", "was", "is not", "was not")
WHAT = ("late", "broken", "good", "fast", "on time")


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Distinct sentences of three parts."""
    made = [f"{who} {does} {what}" for who in WHO for does in DOES for what in WHAT]
    random.Random(4).shuffle(made)
    return made


@pytest.fixture(scope="session")
def corpus(sentences: list[str]) -> Corpus:
    """Eighty sentences to learn from, twenty to measure on."""
    texts = [Text(key, ("", sentence)) for key, sentence in enumerate(sentences)]
    return Corpus("d" * 64, train=texts[:80], valid=texts[80:])


@pytest.fixture(scope="session")
def piece_tokenizer(tiny_tokenizer_path: Path) -> PieceTokenizer:
    return PieceTokenizer(tiny_tokenizer_path)


@pytest.fixture
def pretrain_task(tiny_task: TaskConfig) -> Callable[..., TaskConfig]:
    """The tiny task with quick pretraining, changed as asked."""
    quick = {"batch_size": 8, "learning_rate": 5e-3, "epochs": 2, "head_steps": 5}

    def make(**changes: Any) -> TaskConfig:
        config = PretrainConfig.model_validate(quick | changes)
        return tiny_task.model_copy(update={"pretrain": config})

    return make
