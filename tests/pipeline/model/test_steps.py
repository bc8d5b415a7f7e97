"""One optimizer step: however a batch is read, the gradient is that of the whole of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pipeline.model.batches import Item, padded_length, training_items
from pipeline.model.checkpoint import new_classifier
from pipeline.model.fit import recomputed_activations
from pipeline.model.labelled import label_matrix
from pipeline.model.losses import HeadLosses
from pipeline.model.ranks import ranks_for
from pipeline.model.recipe import Recipe
from pipeline.model.steps import StepFacts, Stepper
from schemas.errors import DataContractError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

    MakeStepper = Callable[..., tuple[Classifier, Stepper]]
    Gradients = dict[str, torch.Tensor]


@pytest.fixture
def examples(make_example: Callable[..., Example]) -> list[Example]:
    """Ten records: labels are missing unevenly, lengths differ, some have three windows."""
    made = [
        make_example(
            f"r{row}",
            queue=None if row % 3 == 0 else row % 3,
            topics=None if row % 4 == 1 else (row % 2, 1),
            filler=row + 1,
            seed=row,
        )
        for row in range(10)
    ]
    others = [example.windows[0] for example in made]
    return [
        type(example)(**{**vars(example), "windows": (*example.windows, *others[: row % 3])})
        for row, example in enumerate(made)
    ]


@pytest.fixture
def make_stepper(
    examples: list[Example],
    toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> MakeStepper:
    """A stepper over a fresh tiny model that clips nothing."""

    def make(**changes: Any) -> tuple[Classifier, Stepper]:
        config = toy_config(**{"max_grad_norm": 1e9, "max_windows_per_record": 3, **changes})
        model = new_classifier(config, toy_heads)
        targets = {head.name: label_matrix(examples, head.name, head.config) for head in toy_heads}
        stepper = Stepper(
            ranks=ranks_for(model, config),
            losses=HeadLosses(toy_heads, config, targets),
            targets={name: torch.from_numpy(rows) for name, rows in targets.items()},
            heads=toy_heads, config=config, recipe=Recipe(1, 1e-3, "a test"),
            total_steps=10, pad_id=0,
        )  # fmt: skip
        return model.train(), stepper

    return make


def items_of(examples: Sequence[Example], stepper: Stepper) -> list[Item]:
    return training_items(examples, stepper.config, epoch=0)


def gradients(model: Classifier) -> Gradients:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def step(make: MakeStepper, examples: list[Example], **changes: Any) -> tuple[StepFacts, Gradients]:
    model, stepper = make(**changes)
    torch.manual_seed(3)
    facts = stepper.step(items_of(examples, stepper))
    return facts, gradients(model)


def assert_close(one: Gradients, other: Gradients, *, atol: float = 1e-6) -> None:
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], atol=atol, rtol=0, msg=name)


@pytest.mark.parametrize("how", ["mean", "attention"])
@pytest.mark.parametrize("parts", [2, 3, 50])
def test_accumulated_parts_give_the_gradient_of_the_whole(
    how: str, parts: int, make_stepper: MakeStepper, examples: list[Example]
) -> None:
    changes = {"window_pooling": how, "label_smoothing": 0.1}
    whole, wanted = step(make_stepper, examples, **changes)
    facts, got = step(make_stepper, examples, accumulate_steps=parts, **changes)
    assert_close(got, wanted)
    assert facts.loss == pytest.approx(whole.loss, abs=1e-6)
    assert facts.gradient_norm == pytest.approx(whole.gradient_norm, abs=1e-5)


def test_the_norm_is_taken_before_clipping(
    make_stepper: MakeStepper, examples: list[Example]
) -> None:
    facts, whole = step(make_stepper, examples)
    by_hand = math.sqrt(sum(float(gradient.pow(2).sum()) for gradient in whole.values()))
    assert facts.gradient_norm == pytest.approx(by_hand, rel=1e-5)
    clipped_facts, clipped = step(make_stepper, examples, max_grad_norm=by_hand / 2)
    assert clipped_facts.gradient_norm == facts.gradient_norm
    assert_close(clipped, {name: gradient / 2 for name, gradient in whole.items()})


def test_an_adversarial_pass_adds_its_gradient(
    make_stepper: MakeStepper, examples: list[Example]
) -> None:
    epsilon = 0.7
    _, plain = step(make_stepper, examples)
    _, both = step(make_stepper, examples, adversarial_epsilon=epsilon)
    model, stepper = make_stepper()
    name = next(name for name, _ in model.named_parameters() if "word_embeddings" in name)
    with torch.no_grad():
        model.get_parameter(name).add_(plain[name] * epsilon / plain[name].norm())
    stepper.step(items_of(examples, stepper))
    moved = gradients(model)
    assert_close(both, {name: plain[name] + moved[name] for name in plain}, atol=1e-5)
    assert not torch.allclose(moved[name], plain[name], atol=1e-4)


def test_r_drop_adds_what_dropout_makes_differ(
    make_stepper: MakeStepper, examples: list[Example]
) -> None:
    # Without dropout both passes are one: the loss is as it was, to rounding.
    plain, wanted = step(make_stepper, examples)
    same, got = step(make_stepper, examples, r_drop_alpha=4.0)
    assert same.loss == pytest.approx(plain.loss, abs=1e-6)
    assert_close(got, wanted, atol=1e-5)
    # With it the loss grows in a line with the weight.
    losses = [
        step(make_stepper, examples, r_drop_alpha=alpha, dropout=0.3)[0].loss
        for alpha in (1e-6, 1.0, 2.0)
    ]
    assert losses[0] < losses[1] < losses[2]
    assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-3)


def test_recomputed_activations_give_the_same_gradient(
    make_stepper: MakeStepper, examples: list[Example]
) -> None:
    _, wanted = step(make_stepper, examples, dropout=0.3)
    model, stepper = make_stepper(dropout=0.3)
    torch.manual_seed(3)
    with recomputed_activations(model.encoder, is_asked=True):
        assert model.encoder.is_gradient_checkpointing
        stepper.step(items_of(examples, stepper))
    assert not model.encoder.is_gradient_checkpointing
    assert_close(gradients(model), wanted)


def test_tokens_and_cells_of_what_was_read(
    make_stepper: MakeStepper, examples: list[Example]
) -> None:
    _, stepper = make_stepper(accumulate_steps=2)
    items = items_of(examples, stepper)
    facts = stepper.step(items)
    windows = [item.windows[0] for item in items]
    half = -(-len(windows) // 2)
    assert facts.tokens == sum(window.n_tokens for window in windows)
    assert facts.cells == sum(
        len(part) * padded_length(part) for part in (windows[:half], windows[half:])
    )


def test_rates_follow_the_schedule(make_stepper: MakeStepper, examples: list[Example]) -> None:
    _, stepper = make_stepper(warmup_fraction=0.2)
    items = items_of(examples, stepper)[:2]
    rates = [stepper.step(items).learning_rate for _ in range(10)]
    assert rates == pytest.approx(
        [1e-3 * share for share in (0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125)]
    )


def test_weights_stay_when_the_loss_is_not_finite(
    make_stepper: MakeStepper, examples: list[Example]
) -> None:
    model, stepper = make_stepper()
    with torch.no_grad():
        model.heads.bias[0] = float("inf")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(DataContractError, match=r"the training loss became (nan|inf)"):
        stepper.step(items_of(examples, stepper))
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name
