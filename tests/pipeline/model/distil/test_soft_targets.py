"""The answers of teachers as targets, by hand for every kind of head."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline.heads import HeadSlice, head_slices
from pipeline.model.batches import Item
from pipeline.model.distil.soft_targets import SoftTargets, mean_answers, soft_loss
from pipeline.model.extra_loss import WholeBatch
from schemas.distil import DistilConfig
from schemas.task import HeadConfig

HEADS = head_slices(
    {
        "queue": HeadConfig(column="q", labels=("a", "b", "c"), loss_weight=2.0),
        "tags": HeadConfig(kind="multi", column="t", labels=("x", "y")),
        "mood": HeadConfig(kind="aspect", column="m", labels=("good",), aspects=("food", "staff")),
    }
)
N_LOGITS = HEADS[-1].columns.stop


def one_head(place: int) -> tuple[HeadSlice, ...]:
    return head_slices({HEADS[place].name: HEADS[place].config})


def softmax(logits: list[float], temperature: float) -> list[float]:
    powers = [math.exp(each / temperature) for each in logits]
    return [each / sum(powers) for each in powers]


def kl(teacher: list[float], student: list[float]) -> float:
    return sum(q * math.log(q / p) for q, p in zip(teacher, student, strict=True))


def loss_of(
    student: list[list[float]], teacher: list[list[float]], heads: tuple[HeadSlice, ...], t: float
) -> float:
    taught = torch.tensor([teacher])
    return float(
        soft_loss(torch.tensor(student), taught, heads, temperature=t, n_items=len(student))
    )


def test_single_is_kl_over_labels_times_the_square_of_t() -> None:
    student, teacher = [[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]], [[2.0, 1.0, 0.0], [0.5, 0.0, 1.0]]
    by_record = [
        kl(softmax(theirs, 3.0), softmax(mine, 3.0))
        for mine, theirs in zip(student, teacher, strict=True)
    ]
    wanted = 2.0 * 3.0**2 * sum(by_record) / 2  # the head counts twice, and there are two records
    assert loss_of(student, teacher, one_head(0), 3.0) == pytest.approx(wanted, rel=1e-5)


def test_multi_is_kl_of_yes_and_no_by_label() -> None:
    def both(logit: float) -> list[float]:
        yes = 1 / (1 + math.exp(-logit / 2.0))
        return [yes, 1 - yes]

    wanted = 4.0 * (kl(both(3.0), both(1.0)) + kl(both(-1.0), both(0.5))) / 2
    got = loss_of([[1.0, 0.5]], [[3.0, -1.0]], one_head(1), 2.0)
    assert got == pytest.approx(wanted, rel=1e-5)


def test_aspect_is_kl_over_the_choices_of_each_aspect() -> None:
    student, teacher = [1.0, 0.0, 0.3, 0.9], [0.0, 2.0, 1.0, -1.0]
    apart = [kl(softmax(teacher[a : a + 2], 1.0), softmax(student[a : a + 2], 1.0)) for a in (0, 2)]
    got = loss_of([student], [teacher], one_head(2), 1.0)
    assert got == pytest.approx(sum(apart) / 2, rel=1e-5)


def test_equal_logits_cost_nothing_and_far_ones_stay_finite() -> None:
    logits = torch.tensor([[200.0, -200.0, 0.0, 90.0, -90.0, 5.0, -300.0, 0.0, 300.0]])
    same = soft_loss(logits, logits[None], HEADS, temperature=0.5, n_items=1)
    assert float(same) == pytest.approx(0.0, abs=1e-6)
    assert torch.isfinite(soft_loss(-logits, logits[None], HEADS, temperature=0.5, n_items=1))


def test_parts_of_a_batch_add_up() -> None:
    torch.manual_seed(1)
    taught, logits = torch.randn(2, 7, N_LOGITS), torch.randn(7, N_LOGITS)
    config = DistilConfig(teacher=("run:a", "run:b"), alpha=0.3)
    loss = SoftTargets(taught, HEADS, config)
    items = [Item((), row) for row in (6, 0, 5, 1, 4, 2, 3)]
    batch = WholeBatch(7, {}, step=0, total_steps=1)
    mine = logits[[item.row for item in items]]
    whole = float(loss(items, mine, batch=batch))
    parts = [(items[:3], mine[:3]), (items[3:4], mine[3:4]), (items[4:], mine[4:])]
    assert sum(float(loss(*part, batch=batch)) for part in parts) == pytest.approx(whole, rel=1e-5)
    full = soft_loss(logits, taught, HEADS, temperature=config.temperature, n_items=7)
    assert whole == pytest.approx(0.3 * float(full), rel=1e-5)


def test_several_teachers_teach_the_mean_of_what_each_alone_would() -> None:
    torch.manual_seed(2)
    taught = torch.randn(3, 4, N_LOGITS) * torch.tensor([1.0, 2.0, 5.0])[:, None, None]
    student = torch.randn(4, N_LOGITS, requires_grad=True)

    def gradient(teachers: torch.Tensor) -> torch.Tensor:
        loss = soft_loss(student, teachers, HEADS, temperature=2.0, n_items=4)
        (found,) = torch.autograd.grad(loss, student)
        return found

    alone = torch.stack([gradient(each[None]) for each in taught]).mean(dim=0)
    torch.testing.assert_close(gradient(taught), alone)


@pytest.mark.parametrize("ensemble", ["probabilities", "logits"])
def test_mean_answers_give_the_teachers_mean(ensemble: str) -> None:
    torch.manual_seed(3)
    taught = torch.randn(2, 3, N_LOGITS)
    got = mean_answers(taught, HEADS, ensemble)
    queue, tags = HEADS[0].columns, HEADS[1].columns
    if ensemble == "probabilities":
        wanted = taught[..., queue].softmax(-1).mean(0), taught[..., tags].sigmoid().mean(0)
    else:
        wanted = taught[..., queue].mean(0).softmax(-1), taught[..., tags].mean(0).sigmoid()
    torch.testing.assert_close(got[:, queue].softmax(dim=-1), wanted[0])
    torch.testing.assert_close(got[:, tags].sigmoid(), wanted[1])
