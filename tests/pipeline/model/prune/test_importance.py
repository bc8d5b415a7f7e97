"""Importance by hand: slopes along masks, lengths of weights, parts that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pipeline.heads import head_slices
from pipeline.model.batches import tensor_inputs
from pipeline.model.labelled import label_matrix
from pipeline.model.losses import plain_loss
from pipeline.model.prune.anatomy import Block, layer_parts
from pipeline.model.prune.importance import measure_importance, weight_norms
from pipeline.model.prune.masks import masked
from schemas.prune import PruneConfig
from schemas.task import HeadConfig, TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier

PRUNE = PruneConfig(neurons=0.5)


def loss_of(model: Classifier, example: Example, heads: tuple[HeadSlice, ...]) -> float:
    targets = {
        head.name: torch.from_numpy(label_matrix([example], head.name, head.config))
        for head in heads
    }
    with torch.no_grad():
        logits = model(**tensor_inputs(model, example.windows, pad_id=0))
    return float(plain_loss(logits.double(), targets, heads, counts=dict.fromkeys(targets, 1)))


def test_a_slope_is_what_the_loss_does_when_a_part_counts_less(
    tiny_model: Classifier, toy_heads: tuple[HeadSlice, ...], toy_examples: list[Example],
    toy_config: Callable[..., TrainConfig],
) -> None:  # fmt: skip
    some, step = toy_examples[:2], 1e-2
    found = measure_importance(
        tiny_model, some, toy_heads, train=toy_config(), prune=PRUNE, pad_id=0
    )
    (first, _) = layer_parts(tiny_model.encoder)
    for block, scores in ((first.heads, found.heads[0]), (first.neurons, found.neurons[0])):
        by_hand = torch.zeros(block.n_groups)
        for group in range(block.n_groups):
            for example in some:
                less, more = torch.ones(2, block.n_groups)
                less[group] -= step
                more[group] += step
                with masked([(block, less)]):
                    low = loss_of(tiny_model, example, toy_heads)
                with masked([(block, more)]):
                    high = loss_of(tiny_model, example, toy_heads)
                by_hand[group] += abs(high - low) / (2 * step)
        torch.testing.assert_close(scores, by_hand / by_hand.norm(), atol=5e-3, rtol=1e-2)


def test_a_batch_gives_what_its_records_give_alone(
    tiny_model: Classifier, toy_heads: tuple[HeadSlice, ...], toy_examples: list[Example],
    toy_config: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    both = []
    for at_once in (16, 1):
        monkeypatch.setattr("pipeline.model.prune.importance._ITEMS_AT_ONCE", at_once)
        both.append(
            measure_importance(
                tiny_model, toy_examples[:20], toy_heads,
                train=toy_config(), prune=PRUNE, pad_id=0,
            )
        )  # fmt: skip
    for together, alone in zip(both[0].neurons, both[1].neurons, strict=True):
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("window_pooling", ["mean", "attention"])
@pytest.mark.parametrize("score", ["taylor", "magnitude"])
def test_what_nobody_reads_matters_least(
    score: str, window_pooling: str, classifier_of: Callable[..., Classifier],
    make_example: Callable[..., Example],
) -> None:  # fmt: skip
    heads = head_slices({"queue": HeadConfig(column="q", labels=("a", "b", "c"))})
    model = classifier_of("modernbert")
    examples = [make_example(f"r{n}", queue=n % 3, seed=n) for n in range(6)]
    parts = layer_parts(model.encoder)[1]
    with torch.no_grad():
        parts.neurons.reader.weight[:, 4] = 0.0
        parts.heads.reader.weight[:, 16:24] = 0.0  # of the third head
    config = TrainConfig(window_pooling=window_pooling)
    prune = PruneConfig(heads=0.1, neuron_score=score)
    found = measure_importance(model, examples, heads, train=config, prune=prune, pad_id=0)
    assert float(found.neurons[1][4]) == 0.0
    assert float(found.heads[1][2]) == 0.0
    assert sorted(found.neurons[1].tolist())[1] > 0.0
    assert found.heads[1][:2].min() > 0.0
    for scores in (*found.heads, *found.neurons):
        assert float(scores.norm()) == pytest.approx(1.0)


def test_weight_norms_by_hand() -> None:
    maker, reader = torch.nn.Linear(2, 8), torch.nn.Linear(4, 1)  # two parts, groups of two
    with torch.no_grad():
        maker.weight.copy_(torch.arange(16.0).view(8, 2))
        reader.weight.copy_(torch.tensor([[3.0, 4.0, 6.0, 8.0]]))
    into = [sum(n * n for n in numbers) ** 0.5 for numbers in ((0, 1, 2, 3, 8, 9, 10, 11),)]
    into.append(sum(n * n for n in (4, 5, 6, 7, 12, 13, 14, 15)) ** 0.5)
    found = weight_norms(Block((maker,), reader, group=2, parts=2))
    assert found.tolist() == pytest.approx([into[0] * 5.0, into[1] * 10.0])
