"""One rank of a training run over gloo: `distributed_worker.py RANK WORLD FOLDER`.

Of more than one epoch it resumes from the first one's state too, and tells both ends' weights.
"""

from __future__ import annotations

import copy
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier
from pipeline.model.domain_adversarial import domain_losses
from pipeline.model.fit import fit
from pipeline.model.labelled import load_examples
from pipeline.model.ranks import ranks_for
from pipeline.model.recipe import choose_recipe
from schemas.errors import DataContractError
from schemas.task import TaskConfig

if TYPE_CHECKING:
    from pipeline.model.fit import Progress
    from pipeline.model.network import Classifier
    from pipeline.model.ranks import Ranks

State = dict[str, Any]


def main(rank: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    # A rank that waits for another for ever becomes an error here.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world,
        timeout=timedelta(seconds=30),
    )  # fmt: skip
    work = json.loads((folder / "work.json").read_text())
    answer: dict[str, object]
    try:
        model, progress, states = train(folder, work, poison=work["poison"] and rank == 0)
        answer = {
            "history": progress.history,
            "weights": total(model),
            "share_held": share_held(
                ranks_for(model, TaskConfig.model_validate(work["task"]).train)
            ),
        }
        if work["resume"]:
            again, _, _ = train(folder, work, resume=only_copy_of_rank_0(states[0]))
            same = zip(model.state_dict().values(), again.state_dict().values(), strict=True)
            answer["resumed_to_the_bit"] = all(torch.equal(one, two) for one, two in same)
    except DataContractError as error:
        answer = {"error": str(error)}
    (folder / f"rank{rank}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


def train(
    folder: Path, work: dict[str, Any], *, resume: State | None = None, poison: bool = False
) -> tuple[Classifier, Progress, list[State]]:
    task = TaskConfig.model_validate(work["task"])
    examples = load_examples(folder / "examples.parquet")
    heads = head_slices(task.heads)
    model = new_classifier(task.train, heads)
    if poison:
        with torch.no_grad():
            model.heads.bias.fill_(float("nan"))
    states: list[State] = []
    parts = {
        split: [example for example in examples if example.split == split]
        for split in ("train", "valid")
    }
    progress = fit(
        model, **parts, heads=heads, config=task.train, resume=resume,
        recipe=choose_recipe(task.train, n_train=len(parts["train"]), hidden_size=32),
        on_epoch=lambda _, state, __: states.append(copy.deepcopy(state)),
        extra_losses=domain_losses(
            [window for example in parts["valid"] for window in example.windows], task.train,
            hidden_size=32, precision="fp32", pad_id=0,
        ),
    )  # fmt: skip
    return model, progress, states


def only_copy_of_rank_0(state: State) -> State:
    """What rank 0 saved, as all ranks read it back."""
    sent = [state]
    dist.broadcast_object_list(sent, src=0)
    return sent[0]


def share_held(ranks: Ranks) -> float:
    """How much of the weights that are trained this rank holds."""
    held = [w.to_local() if isinstance(w, DTensor) else w for w in ranks.trained.parameters()]
    whole = sum(weight.numel() for weight in ranks.trained.parameters())
    return sum(weight.numel() for weight in held) / whole


def total(model: Classifier) -> float:
    return sum(float(tensor.double().sum()) for tensor in model.state_dict().values())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
