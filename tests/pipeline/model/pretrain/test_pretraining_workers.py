"""Several workers must learn as one does, and none may wait for another for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.model.pretrain.packing import pack, pair_up, save_sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.pretrain.corpus import Corpus
    from pipeline.model.pretrain.pieces import PieceTokenizer
    from schemas.task import TaskConfig

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("pretraining_worker.py")


@pytest.mark.parametrize("next_sentence", [False, True])
def test_two_workers_learn_as_one_though_the_last_batch_is_one_sequence(
    next_sentence: bool, pretrain_task: Callable[..., TaskConfig], corpus: Corpus,
    piece_tokenizer: PieceTokenizer, tiny_tokenizer_path: Path, tmp_path: Path,
    run_ranks: Callable[..., list[dict[str, Any]]],
) -> None:  # fmt: skip
    documents = piece_tokenizer.documents(corpus.train[:33])
    single = piece_tokenizer.single
    sequences = (
        pair_up(documents, single=single, pair=piece_tokenizer.pair, max_tokens=32, seed=1)
        if next_sentence
        else pack(documents, template=single, max_tokens=32, packed=False)
    )
    assert len(sequences) % 8 == 1
    save_sequences(sequences, tmp_path / "train.parquet")
    shutil.copyfile(tiny_tokenizer_path, tmp_path / "tokenizer.json")
    # Three at once: two workers make another number of passes than one.
    task = pretrain_task(
        dropout=0.0, micro_batch_size=3, next_sentence=next_sentence, learning_rate=1e-3
    )
    (tmp_path / "task.json").write_text(task.model_dump_json())
    (alone,) = run_ranks(WORKER, tmp_path, world=1)
    (tmp_path / "meet").unlink(missing_ok=True)  # where the ranks have met
    first, second = run_ranks(WORKER, tmp_path, world=2)
    assert first == second
    for mine, theirs in zip(first["history"], alone["history"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-3)
