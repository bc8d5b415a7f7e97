"""One rank of a pretraining run over gloo: `pretraining_worker.py RANK WORLD FOLDER`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.model.pretrain.lesson import make_lesson
from pipeline.model.pretrain.loop import pretrain
from pipeline.model.pretrain.packing import load_sequences
from pipeline.model.pretrain.pieces import PieceTokenizer
from pipeline.model.pretrain.starting import load_start
from schemas.task import TaskConfig


def main(rank: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    # A rank that waits for another for ever becomes an error here.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    task = TaskConfig.model_validate(json.loads((folder / "task.json").read_text()))
    tokenizer = PieceTokenizer(folder / "tokenizer.json")
    train = load_sequences(folder / "train.parquet")
    lesson = make_lesson(
        load_start(task.train.backbone, task.pretrain).model, task, tokenizer,
        train=train, valid=train[:7],
    )  # fmt: skip
    progress = pretrain(
        lesson.objective, lesson.feed, task.pretrain, pad_id=tokenizer.pad_id,
        measure=lesson.measure,
    )  # fmt: skip
    total = sum(float(tensor.double().sum()) for tensor in lesson.objective.state_dict().values())
    answer = {"history": progress.history, "weights": total}
    (folder / f"rank{rank}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
