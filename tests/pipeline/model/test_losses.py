"""Losses by hand, and what they must not change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.heads import head_slices
from pipeline.model.losses import (
    MAX_CLASS_WEIGHT,
    HeadLosses,
    balanced_weights,
    known_counts,
    plain_loss,
)
from schemas.task import HeadConfig, TrainConfig

NAN = float("nan")
HEADS = head_slices(
    {
        "queue": HeadConfig(column="queue", labels=("a", "b", "c")),
        "tags": HeadConfig(kind="multi", column="tags", labels=("x", "y"), loss_weight=2.0),
        "mood": HeadConfig(kind="aspect", column="mood", labels=("good", "bad"),
                           aspects=("food", "staff"), loss_weight=0.5),
    }
)  # fmt: skip
QUEUE, TAGS, MOOD = HEADS
WIDTH = 3 + 2 + 2 * 3
TARGETS = {
    "queue": torch.tensor([0, 1, -100, 1]),
    "tags": torch.tensor([[1.0, 0.0], [NAN, NAN], [0.0, 0.0], [1.0, 0.0]]),
    "mood": torch.tensor([[0.0, 2.0], [1.0, 1.0], [NAN, NAN], [0.0, 0.0]]),
}
TRAIN_TARGETS: dict[str, np.ndarray[Any, Any]] = {
    name: target.numpy() for name, target in TARGETS.items()
}
ZEROS = [0.0] * WIDTH


TWO = head_slices(
    {
        "queue": HeadConfig(column="queue", labels=("a", "b")),
        "tags": HeadConfig(kind="multi", column="tags", labels=("x", "y"), loss_weight=2.0),
    }
)


def some_logits(seed: int, rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed)) * 2


def losses(**settings: Any) -> HeadLosses:
    return HeadLosses(HEADS, TrainConfig(**settings), TRAIN_TARGETS)


def row(values: dict[int, float]) -> torch.Tensor:
    return torch.tensor([[values.get(column, 0.0) for column in range(WIDTH)]])


def only(head: str, target: Any) -> dict[str, torch.Tensor]:
    """Targets of one record that is labelled for one head alone."""
    nothing = {
        "queue": torch.tensor([-100]),
        "tags": torch.tensor([[NAN, NAN]]),
        "mood": torch.tensor([[NAN, NAN]]),
    }
    return nothing | {head: torch.tensor([target])}


def test_plain_loss_of_an_aspect_head_by_hand() -> None:
    # food: softmax of log 1, 2, 1 = 1/4, 1/2, 1/4; staff: log 1, 1, 3 = 1/5, 1/5, 3/5.
    logits = row({6: math.log(2), 10: math.log(3)})
    loss = plain_loss(logits, only("mood", [0.0, 2.0]), HEADS)
    assert float(loss) == pytest.approx(0.5 * -(math.log(1 / 4) + math.log(3 / 5)) / 2, abs=1e-6)


def test_an_aspect_counts_as_one_label() -> None:
    assert known_counts(TARGETS) == {"queue": 3, "tags": 6, "mood": 6}


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_without_focus_and_weights_it_is_the_plain_loss_to_the_bit(seed: int) -> None:
    logits = some_logits(seed)
    plain = plain_loss(logits, TARGETS, HEADS)
    assert torch.equal(losses()(logits, TARGETS), plain)
    assert torch.equal(losses(focal_gamma=0.0, class_weights="none")(logits, TARGETS), plain)
    assert float(losses(label_smoothing=0.1)(logits, TARGETS)) != float(plain)


@pytest.mark.parametrize(
    "changes",
    [{}, {"focal_gamma": 2.0}, {"class_weights": "balanced"},
     {"focal_gamma": 0.5, "class_weights": "balanced", "label_smoothing": 0.1}],
)  # fmt: skip
def test_what_is_not_known_has_no_gradient(changes: dict[str, Any]) -> None:
    logits = some_logits(1).requires_grad_()
    losses(**changes)(logits, TARGETS).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    touched = logits.grad != 0
    assert touched[:, :3].all(dim=1).tolist() == [True, True, False, True]
    assert touched[:, 3:5].all(dim=1).tolist() == [True, False, True, True]
    assert touched[:, 5:].all(dim=1).tolist() == [True, True, False, True]
    assert not touched[2, :3].any()
    assert not touched[1, 3:5].any()
    assert not touched[2, 5:].any()


@pytest.mark.parametrize(
    "changes",
    [{"focal_gamma": 2.0}, {"class_weights": "balanced"}, {"label_smoothing": 0.2},
     {"focal_gamma": 1.5, "class_weights": "balanced", "label_smoothing": 0.1}],
)  # fmt: skip
def test_shares_add_up_to_the_loss_of_the_whole(changes: dict[str, Any]) -> None:
    logits, wanted = some_logits(3), losses(**changes)
    counts = known_counts(TARGETS)
    shares = [
        wanted(
            logits[rows], {name: target[rows] for name, target in TARGETS.items()}, counts=counts
        )
        for rows in (slice(0, 1), slice(1, 4))
    ]
    assert float(sum(shares)) == pytest.approx(float(wanted(logits, TARGETS)), abs=1e-6)


def test_focal_loss_by_hand() -> None:
    """Lin et al. 2017: (1 - p) ** gamma times the log loss of what is true."""
    focal = losses(focal_gamma=2.0)
    logits = row({0: math.log(2)})  # softmax 1/2, 1/4, 1/4
    assert float(focal(logits, only("queue", 0))) == pytest.approx(-0.25 * math.log(1 / 2))
    assert float(focal(logits, only("queue", 1))) == pytest.approx(-(0.75**2) * math.log(1 / 4))
    logits = row({3: math.log(3)})  # sigmoid 3/4 and 1/2
    got = float(focal(logits, only("tags", [1.0, 0.0])))
    yes, no = 0.25**2 * math.log(3 / 4), 0.5**2 * math.log(1 / 2)
    assert got == pytest.approx(2.0 * -(yes + no) / 2)
    logits = row({5: math.log(2)})  # food 1/2, 1/4, 1/4; staff a third each
    got = float(focal(logits, only("mood", [0.0, 1.0])))
    food, staff = 0.5**2 * math.log(1 / 2), (2 / 3) ** 2 * math.log(1 / 3)
    assert got == pytest.approx(0.5 * -(food + staff) / 2)


def test_focal_loss_with_smoothing_scales_each_class_by_its_own_doubt() -> None:
    logits = row({0: math.log(2)})
    got = losses(focal_gamma=2.0, label_smoothing=0.3)(logits, only("queue", 0))
    terms = [(0.8, 1 / 2), (0.1, 1 / 4), (0.1, 1 / 4)]
    assert float(got) == pytest.approx(sum(-q * (1 - p) ** 2 * math.log(p) for q, p in terms))


@given(st.integers(0, 10_000), st.floats(0.01, 5.0))
@settings(deadline=None, max_examples=30)
def test_focus_only_takes_away(seed: int, gamma: float) -> None:
    logits = some_logits(seed)
    assert float(losses(focal_gamma=gamma)(logits, TARGETS)) <= float(
        plain_loss(logits, TARGETS, HEADS)
    )


@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.0])
def test_focus_on_a_certain_answer_has_a_finite_gradient(gamma: float) -> None:
    logits = row({0: 200.0, 3: 200.0, 4: -200.0, 5: 200.0, 8: 200.0}).requires_grad_()
    targets = {
        "queue": torch.tensor([0]),
        "tags": torch.tensor([[1.0, 0.0]]),
        "mood": torch.tensor([[0.0, 0.0]]),
    }
    loss = losses(focal_gamma=gamma)(logits, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_balanced_weights_of_single_labels_by_hand() -> None:
    # 6 known records, 2 labels that occur: 6 / (2 * 4) and 6 / (2 * 2).
    target = np.array([0, 0, 0, 0, 1, 1, -100])
    assert balanced_weights(target, QUEUE).tolist() == pytest.approx([0.75, 1.5, 1.0])
    known = target[target >= 0]
    assert balanced_weights(target, QUEUE)[known].mean() == pytest.approx(1.0)
    assert balanced_weights(np.array([-100]), QUEUE).tolist() == [1.0, 1.0, 1.0]


def test_balanced_weights_of_several_labels_by_hand() -> None:
    target = np.array([[1, 0], [0, 0], [0, 0], [0, 0], [NAN, NAN]], dtype=np.float32)
    assert balanced_weights(target, TAGS).tolist() == [3.0, 1.0]  # three lack x for one that has it
    rare = np.zeros((1000, 2), dtype=np.float32)
    rare[0, 0], rare[1:, 1] = 1.0, 1.0
    assert balanced_weights(rare, TAGS).tolist() == pytest.approx([MAX_CLASS_WEIGHT, 0.1])


def test_balanced_weights_of_aspects_by_hand() -> None:
    target = np.array([[0, 1], [0, 1], [0, 1], [2, 1], [NAN, NAN]], dtype=np.float32)
    food, staff = balanced_weights(target, MOOD).tolist()
    assert food == pytest.approx([4 / (2 * 3), 1.0, 4 / (2 * 1)])
    assert staff == [1.0, 1.0, 1.0]


def test_balanced_weights_enter_the_loss_by_hand() -> None:
    balanced = losses(class_weights="balanced")  # queue: one a and two b, so 3/2 and 3/4
    third = math.log(3)
    assert float(balanced(row({}), only("queue", 0))) == pytest.approx(1.5 * third)
    assert float(balanced(row({}), only("queue", 1))) == pytest.approx(0.75 * third)
    # tags: two of three have x, nobody has y; weights 1/2 and 1 of a yes.
    got = float(balanced(row({}), only("tags", [1.0, 1.0])))
    assert got == pytest.approx(2.0 * (0.5 + 1.0) * math.log(2) / 2)
    # food: two of three have none, one has good; staff: one of each.
    got = float(balanced(row({}), only("mood", [1.0, 2.0])))
    assert got == pytest.approx(0.5 * (1.5 + 1.0) * third / 2)


def test_weights_and_focus_together_by_hand() -> None:
    both = losses(class_weights="balanced", focal_gamma=2.0)
    got = float(both(row({}), only("queue", 0)))
    assert got == pytest.approx(1.5 * (2 / 3) ** 2 * math.log(3))
    got = float(both(row({}), only("tags", [1.0, 0.0])))
    assert got == pytest.approx(2.0 * (0.5 + 1.0) * 0.25 * math.log(2) / 2)


def test_smoothing_of_an_aspect_head_by_hand() -> None:
    logits = row({5: math.log(2)})
    got = losses(label_smoothing=0.3)(logits, only("mood", [0.0, 0.0]))
    food = -(0.8 * math.log(1 / 2) + 0.2 * math.log(1 / 4))
    assert float(got) == pytest.approx(0.5 * (food + math.log(3)) / 2)


def test_no_label_at_all_is_zero_loss_that_can_go_backward() -> None:
    logits = some_logits(2, rows=1).requires_grad_()
    nothing = only("queue", -100)
    loss = losses(focal_gamma=2.0, class_weights="balanced")(logits, nothing)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()


def smoothed_loss(
    logits: torch.Tensor,
    targets: dict[str, torch.Tensor],
    smoothing: float,
    counts: dict[str, int] | None = None,
) -> torch.Tensor:
    return HeadLosses(TWO, TrainConfig(label_smoothing=smoothing), {})(
        logits, targets, counts=counts
    )


def two_targets(queue: list[int], tags: list[list[float]]) -> dict[str, torch.Tensor]:
    return {"queue": torch.tensor(queue), "tags": torch.tensor(tags)}


def test_loss_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), 0.0, math.log(3.0)]])
    loss = smoothed_loss(logits, two_targets([1], [[1.0, 0.0]]), 0.0)
    queue = -math.log(3 / 4)
    tags = (math.log(2) + -math.log(1 / 4)) / 2
    assert float(loss) == pytest.approx(queue + 2.0 * tags, abs=1e-6)


def test_smoothing_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), 0.0, 0.0]])
    loss = smoothed_loss(logits, two_targets([1], [[NAN, NAN]]), 0.2)
    assert float(loss) == pytest.approx(-(0.9 * math.log(3 / 4) + 0.1 * math.log(1 / 4)), abs=1e-6)


def test_rows_without_a_label_have_no_gradient_in_that_head() -> None:
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    wanted = two_targets([0, -100, 1], [[1.0, 0.0], [0.0, 1.0], [NAN, NAN]])
    smoothed_loss(logits, wanted, 0.1).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    touched = logits.grad != 0
    assert touched.tolist() == [[True] * 4, [False, False, True, True], [True, True, False, False]]
    assert torch.isfinite(logits.grad).all()


def test_missing_rows_do_not_thin_the_mean() -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0]])
    with_missing = two_targets([0, -100], [[1.0, 1.0], [NAN, NAN]])
    alone = smoothed_loss(logits[:1], two_targets([0], [[1.0, 1.0]]), 0.0)
    assert float(smoothed_loss(logits, with_missing, 0.0)) == pytest.approx(float(alone), abs=1e-6)


def test_no_label_at_all_is_zero_plain_loss() -> None:
    logits = torch.randn(2, 4).requires_grad_()
    loss = smoothed_loss(logits, two_targets([-100, -100], [[NAN, NAN]] * 2), 0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_shares_add_up_to_the_plain_loss_of_the_whole() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
    wanted = two_targets([0, -100, 1, -100, 0], [[1.0, 0.0], [NAN, NAN], [NAN, NAN], [0.0, 0.0]] * 1
                     + [[1.0, 1.0]])  # fmt: skip
    counts = known_counts(wanted)
    assert counts == {"queue": 3, "tags": 6}
    whole = smoothed_loss(logits, wanted, 0.1)
    shares = [
        smoothed_loss(
            logits[rows], {name: rows_of[rows] for name, rows_of in wanted.items()}, 0.1, counts
        )
        for rows in (slice(0, 2), slice(2, 5))
    ]  # fmt: skip
    assert float(sum(shares)) == pytest.approx(float(whole), abs=1e-6)
