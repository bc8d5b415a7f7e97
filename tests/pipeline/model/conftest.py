"""A set that a tiny model can learn (single tokens decide the labels), and tiny encoders."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from pipeline.heads import HeadSlice, head_slices
from pipeline.model.checkpoint import new_classifier
from pipeline.model.labelled import Example, Split
from pipeline.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from pipeline.model.network import Classifier
    from schemas.task import TaskConfig, TrainConfig

CLS, SEP, FIRST_KEYWORD, FIRST_TOPIC, FIRST_FILLER, LAST_FILLER = 2, 3, 20, 30, 40, 45
ROBERTA = {"type_vocab_size": 1, "pad_token_id": 1}
# Every family of encoders that is proven here, with what it wants beside its sizes.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "mpnet": {},
    "distilbert": {},
    "modernbert": {
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2,
        "sep_token_id": 3, "local_attention": 16,
    },
    "longformer": ROBERTA | {"attention_window": 8},
}  # fmt: skip
OTHER_NAMES = {
    "distilbert": {
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
    }
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny tensors gain nothing from threads, and on a busy machine wait for them very long."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., list[dict[str, Any]]]:
    """Runs a script as each of `world` ranks; answers what they left as `rank0.json` and so on."""

    def run(script: Path, folder: Path, *, world: int) -> list[dict[str, Any]]:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(script), str(rank), str(world), str(folder)],
                stderr=subprocess.PIPE,
            )
            for rank in range(world)
        ]
        for rank in ranks:
            _, errors = rank.communicate(timeout=200)
            assert rank.returncode == 0, errors.decode()[-2000:]
        return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]

    return run


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Each family of encoders in turn; a test that parametrizes `family` itself has those alone."""
    return request.param


@pytest.fixture(scope="session")
def families() -> tuple[str, ...]:
    return tuple(FAMILIES)


@pytest.fixture(scope="session")
def family_config() -> Callable[..., Any]:
    """A family's config of two layers 16 wide, changed as asked; sizes go by BERT's names."""
    return _family_config


@pytest.fixture(scope="session")
def family_encoder() -> Callable[..., nn.Module]:
    """A family's encoder of that config, with the same random weights each time."""

    def make(family: str, **changes: Any) -> nn.Module:
        torch.manual_seed(3)
        return AutoModel.from_config(_family_config(family, **changes)).eval()

    return make


@pytest.fixture(scope="session")
def some_windows() -> list[Window]:
    """Three windows, none of a length that an attention window divides."""
    chooser = torch.Generator().manual_seed(3)
    return [
        Window((2, *torch.randint(5, 64, (n - 2,), generator=chooser).tolist(), 3), (0,) * n, 0, 1)
        for n in (5, 23, 11)
    ]


@pytest.fixture(scope="session")
def toy_heads(tiny_task: TaskConfig) -> tuple[HeadSlice, ...]:
    return head_slices(tiny_task.heads)


@pytest.fixture(scope="session")
def make_example() -> Callable[..., Example]:
    """An example of one window; the keyword token says its queue, topic tokens its topics."""
    return _example


@pytest.fixture(scope="session")
def toy_examples() -> list[Example]:
    """Two thirds to train on, a sixth to validate and a sixth to test; lengths differ."""
    chooser = random.Random(5)
    splits: list[Split] = ["train", "train", "train", "train", "valid", "test"]
    return [
        _example(
            f"r{row}",
            queue=row % 3,
            topics=(chooser.randint(0, 1), chooser.randint(0, 1)),
            split=splits[row // 3 % 6],  # so that each split has all queues
            filler=chooser.randint(1, 6),
            seed=row,
        )
        for row in range(240)
    ]


@pytest.fixture
def toy_config(tiny_task: TaskConfig) -> Callable[..., TrainConfig]:
    """The tiny task's recipe, as fits the toy set and without dropout, changed as asked."""
    fitting = {"dropout": 0.0, "layer_decay": 1.0, "head_learning_rate": 1e-2}

    def make(**changes: Any) -> TrainConfig:
        return tiny_task.train.model_copy(update={**fitting, **changes})

    return make


@pytest.fixture
def tiny_model(
    toy_config: Callable[..., TrainConfig], toy_heads: tuple[HeadSlice, ...]
) -> Classifier:
    """An untrained classifier in evaluation mode."""
    model = new_classifier(toy_config(), toy_heads)
    return model.eval()


def _family_config(family: str, **changes: Any) -> Any:
    sizes = {
        "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 80, "initializer_range": 0.3,
    }  # fmt: skip
    names = OTHER_NAMES.get(family, {})
    settings = sizes | FAMILIES[family] | changes
    return AutoConfig.for_model(
        family, **{names.get(name, name): value for name, value in settings.items()}
    )


def _example(
    record_id: str,
    *,
    queue: int | None = 0,
    topics: tuple[int, ...] | None = (0, 0),
    split: Split = "train",
    filler: int = 4,
    seed: int = 0,
) -> Example:
    chooser = random.Random(seed)
    words = [chooser.randint(FIRST_FILLER, LAST_FILLER) for _ in range(filler)]
    if queue is not None:
        words.append(FIRST_KEYWORD + queue)
    words += [FIRST_TOPIC + place for place, flag in enumerate(topics or ()) if flag]
    chooser.shuffle(words)
    ids = (CLS, *words, SEP)
    # The second half stands in the second segment, as a pair's body does.
    types = tuple(int(place > len(ids) // 2) for place in range(len(ids)))
    return Example(
        record_id=record_id,
        text_hash=f"{seed:032x}",
        split=split,
        lang="en",
        texts=("subject", " ".join(map(str, words))),
        windows=(Window(ids, types, 0, 1),),
        targets={"queue": queue, "topics": topics},
    )
