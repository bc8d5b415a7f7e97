"""Several workers must learn as one does, and none may wait for another for ever."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
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


def run(folder: Path, *, world: int) -> list[dict[str, Any]]:
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(world), str(folder)],
            stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=200)
        assert rank.returncode == 0, errors.decode()[-2000:]
    (folder / "meet").unlink(missing_ok=True)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.parametrize("next_sentence", [False, True])
def test_two_workers_learn_as_one_though_the_last_batch_is_one_sequence(
    next_sentence: bool, pretrain_task: Callable[..., TaskConfig], corpus: Corpus,
    piece_tokenizer: PieceTokenizer, tiny_tokenizer_path: Path, tmp_path: Path,
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
    (alone,) = run(tmp_path, world=1)
    first, second = run(tmp_path, world=2)
    assert first == second
    for mine, theirs in zip(first["history"], alone["history"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3)
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-3)
