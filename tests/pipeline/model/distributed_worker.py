"""One rank of a training run over gloo: `distributed_worker.py RANK WORLD FOLDER`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier
from pipeline.model.fit import fit
from pipeline.model.labelled import load_examples
from pipeline.model.recipe import Recipe
from schemas.errors import DataContractError
from schemas.task import TaskConfig


def main(rank: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    # A rank that waits for another for ever becomes an error here.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world,
        timeout=timedelta(seconds=30),
    )  # fmt: skip
    work = json.loads((folder / "work.json").read_text())
    task = TaskConfig.model_validate(work["task"])
    examples = load_examples(folder / "examples.parquet")
    heads = head_slices(task.heads)
    model = new_classifier(task.train, heads)
    if work["poison"] and rank == 0:
        with torch.no_grad():
            model.heads.bias.fill_(float("nan"))
    answer: dict[str, object]
    try:
        progress = fit(
            model,
            train=[example for example in examples if example.split == "train"],
            valid=[example for example in examples if example.split == "valid"],
            heads=heads, config=task.train, recipe=Recipe(2, 1e-3, "a test"),
        )  # fmt: skip
        total = sum(float(tensor.double().sum()) for tensor in model.state_dict().values())
        answer = {"history": progress.history, "weights": total}
    except DataContractError as error:
        answer = {"error": str(error)}
    (folder / f"rank{rank}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
