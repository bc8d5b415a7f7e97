"""Domains made alike: the reversed gradient, what moves by it, and what it is for."""

from __future__ import annotations

import copy
import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pipeline.model.batches import Item, training_items
from pipeline.model.checkpoint import new_classifier
from pipeline.model.domain_adversarial import (
    DomainLoss,
    domain_losses,
    reversal_strength,
    reverse_gradient,
)
from pipeline.model.extra_loss import WholeBatch
from pipeline.model.fit import Progress, fit
from pipeline.model.labelled import label_matrix
from pipeline.model.losses import HeadLosses
from pipeline.model.ranks import ranks_for
from pipeline.model.recipe import Recipe
from pipeline.model.record_logits import record_logits
from pipeline.model.steps import Stepper
from pipeline.window import Window
from schemas.task import LoraConfig
from schemas.train import AdapterConfig, DomainAdversarialConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

    MakeStepper = Callable[..., tuple[Classifier, Stepper]]

SOURCE_MARK, TARGET_MARK = 50, 51
ASKED = DomainAdversarialConfig(weight=0.5, width=8)


def marked(example: Example, token: int) -> Example:
    """The same with a token of its domain in front of the last one, three times."""
    windows = tuple(
        Window((*w.input_ids[:-1], *[token] * 3, w.input_ids[-1]), (*w.type_ids, 0, 0, 0), 0, 1)
        for w in example.windows
    )
    return type(example)(**{**vars(example), "windows": windows})


def losses_for(config: TrainConfig, examples: Sequence[Example]) -> tuple[DomainLoss, ...]:
    windows = [window for example in examples for window in example.windows]
    return domain_losses(windows, config, hidden_size=32, precision="fp32", pad_id=0)


def test_the_reversed_gradient_by_hand() -> None:
    vectors = torch.tensor([[1.0, -2.0]], requires_grad=True)
    same = reverse_gradient(vectors, 0.25)
    assert torch.equal(same, vectors)
    (same * torch.tensor([[3.0, 5.0]])).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.tolist() == [[-0.75, -1.25]]


def test_the_strength_rises_as_in_the_paper() -> None:
    assert reversal_strength(0.0) == 0.0
    assert reversal_strength(0.1) == pytest.approx(math.tanh(0.5))
    assert reversal_strength(1.0) == pytest.approx(math.tanh(5.0))


def test_a_loss_by_hand(tiny_model: Classifier, toy_examples: list[Example]) -> None:
    """The classifier goes down its loss; what comes back to the encoder goes up."""
    source, (target,) = toy_examples[0].windows[0], toy_examples[2].windows
    loss = DomainLoss([target], config=ASKED, hidden_size=32, precision="fp32", pad_id=0, seed=1)
    loss.attach(tiny_model)

    def vector(window: Window) -> torch.Tensor:
        ids = torch.tensor([window.input_ids])
        tiny_model(ids, torch.ones_like(ids), torch.tensor([window.type_ids]))
        return loss._vectors

    def chances() -> torch.Tensor:
        return torch.sigmoid(loss.classifier(torch.cat([vector(source), vector(target)]))).squeeze(
            1
        )

    def by_hand() -> torch.Tensor:
        """Of a batch of four items this is one."""
        p = chances()
        return -(torch.log(1 - p[0]) + torch.log(p[1])) * ASKED.weight / (2 * 4)

    with torch.no_grad():  # its border lies between the texts: both are told right, or both wrong
        loss.classifier[-1].bias -= chances().logit().mean()
    p = chances().tolist()
    assert (p[0] < 0.5) == (p[1] > 0.5)
    name = "encoder.encoder.layer.1.output.dense.bias"
    (forward,) = torch.autograd.grad(by_hand(), [tiny_model.get_parameter(name)])
    (wanted,) = torch.autograd.grad(by_hand(), [loss.classifier[0].weight])
    right = float(p[0] < 0.5)
    vector(source)  # the pass of the batch
    batch = WholeBatch(4, {}, step=1, total_steps=10)
    got = loss([Item((source,), 0)], torch.zeros(1, 5), batch=batch)
    assert float(got.detach()) == pytest.approx(float(by_hand().detach()), rel=1e-5)
    got.backward()
    torch.testing.assert_close(loss.classifier[0].weight.grad, wanted)
    assert forward.abs().max() > 1e-5
    reversed_ = tiny_model.get_parameter(name).grad
    torch.testing.assert_close(reversed_, -math.tanh(0.5) * forward, atol=1e-7, rtol=1e-4)
    loss.detach()
    assert not tiny_model.heads._forward_pre_hooks
    assert loss.epoch_numbers()["domain_accuracy"] == right


@pytest.fixture
def make_stepper(
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> MakeStepper:
    """A stepper over a fresh tiny model, in the middle of training, that clips nothing."""

    def make(**changes: Any) -> tuple[Classifier, Stepper]:
        config = toy_config(
            **{"max_grad_norm": 1e9, "domain_adversarial": ASKED, "warmup_fraction": 0.0, **changes}
        )
        model, examples = new_classifier(config, toy_heads), toy_examples[:10]
        targets = {head.name: label_matrix(examples, head.name, head.config) for head in toy_heads}
        stepper = Stepper(
            ranks=ranks_for(model, config),
            losses=HeadLosses(toy_heads, config, targets),
            targets={name: torch.from_numpy(rows) for name, rows in targets.items()},
            heads=toy_heads, config=config, recipe=Recipe(1, 1e-3, "a test"),
            total_steps=10, pad_id=0,
            extra_losses=losses_for(config, toy_examples[50:60]),
        )  # fmt: skip
        stepper.scheduler.last_epoch = 4
        return model.train(), stepper

    return make


@pytest.mark.parametrize("how", ["mean", "attention"])
def test_parts_give_the_gradient_of_the_whole(
    how: str, make_stepper: MakeStepper, toy_examples: list[Example]
) -> None:
    found = []
    for parts in (1, 3):
        model, stepper = make_stepper(accumulate_steps=parts, window_pooling=how)
        items = training_items(toy_examples[:10], stepper.config, epoch=0)
        facts = stepper.step(items)
        grads = [
            p.grad.clone() for p in [*model.parameters(), *stepper.beside] if p.grad is not None
        ]
        found.append((facts, grads, stepper.extra_losses[0].epoch_numbers()))
    (whole, wanted, told), (facts, got, also_told) = found
    assert len(got) == len(wanted) > len(list(model.parameters())) - 3
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert facts.loss == pytest.approx(whole.loss, abs=1e-6)
    assert told == also_told
    assert len(stepper.beside) == 4


@pytest.mark.parametrize(
    ("changes", "moving"),
    [
        ({}, ("encoder.", "heads.")),
        ({"adapter": AdapterConfig(width=4, norms=False)}, (".adapter.", "heads.")),
        ({"lora": LoraConfig(rank=2)}, (".attention.", "heads.")),
        ({"frozen_layers": 1}, (".layer.1.", "heads.")),
    ],
    ids=["all", "adapter", "lora", "frozen"],
)
def test_what_is_meant_to_move_moves(
    changes: dict[str, Any],
    moving: tuple[str, ...],
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> None:
    config = toy_config(domain_adversarial=ASKED, **changes)
    model = new_classifier(config, toy_heads)
    extra = losses_for(config, toy_examples[50:60])
    before = copy.deepcopy(model.state_dict())
    asked = copy.deepcopy(extra[0].state_dict())
    fit(
        model, train=toy_examples[:12], valid=toy_examples[12:15], heads=toy_heads, config=config,
        recipe=Recipe(1, 1e-2, "a test", 4, 1e-2), extra_losses=extra,
    )  # fmt: skip
    after = model.state_dict()
    assert after.keys() == before.keys()  # the classifier of domains is no part of the model
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved
    assert all(any(part in name for part in moving) for name in moved)
    assert {part for part in moving if any(part in name for name in moved)} == set(moving)
    learned = extra[0].state_dict()
    assert all(not torch.equal(learned[name], asked[name]) for name in asked)
    assert not model.heads._forward_pre_hooks


def train(
    config: TrainConfig,
    heads: tuple[HeadSlice, ...],
    examples: Sequence[Example],
    *,
    epochs: int,
    resume: dict[str, Any] | None = None,
) -> tuple[Classifier, Progress, list[dict[str, Any]]]:
    """Trains on marked source texts beside target ones that have another mark."""
    states: list[dict[str, Any]] = []
    model = new_classifier(config, heads)
    progress = fit(
        model,
        train=[marked(example, SOURCE_MARK) for example in examples if example.split == "train"],
        valid=[marked(example, SOURCE_MARK) for example in examples if example.split == "valid"],
        heads=heads, config=config, recipe=Recipe(epochs, 2e-3, "a test", 16, 1e-2),
        resume=resume, on_epoch=lambda _, state, __: states.append(copy.deepcopy(state)),
        extra_losses=losses_for(
            config, [marked(example, TARGET_MARK) for example in examples[::2]]
        ),
    )  # fmt: skip
    return model, progress, states


def test_a_resumed_run_equals_the_undisturbed_one(
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> None:
    config = toy_config(domain_adversarial=ASKED, dropout=0.2, adversarial_epsilon=0.1)
    some = random.Random(1).sample(toy_examples, 60)
    whole, progress, states = train(config, toy_heads, some, epochs=3)
    torch.manual_seed(99)
    resumed, again, _ = train(config, toy_heads, some, epochs=3, resume=states[0])
    told = [[row["domain_accuracy"] for row in each.history] for each in (progress, again)]
    assert told[0] == told[1]
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight), name


@pytest.mark.slow
def test_domains_that_one_token_tells_apart_become_alike(
    toy_examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> None:
    target = [marked(example, TARGET_MARK) for example in toy_examples if example.split == "test"]
    queues = label_matrix(target, "queue", toy_heads[0].config)
    right, told = {}, {}
    for weight in (1e-6, 1.0):
        config = toy_config(
            domain_adversarial=DomainAdversarialConfig(weight=weight, width=32), patience_epochs=99
        )
        model, progress, _ = train(config, toy_heads, toy_examples, epochs=12)
        answers = record_logits(model, target, pad_id=0)[:, :3].argmax(axis=1)
        right[weight] = float(np.mean(answers == queues))
        told[weight] = [row["domain_accuracy"] for row in progress.history]
    assert told[1e-6][-1] > 0.8
    assert told[1.0][-1] < 0.65
    assert right[1.0] >= right[1e-6]


def test_without_the_section_nothing_is_added(toy_config: Callable[..., TrainConfig]) -> None:
    assert losses_for(toy_config(), []) == ()
