from __future__ import annotations

import math

import pytest
import torch

from pipeline.heads import head_slices
from pipeline.model.r_drop import r_drop_loss
from schemas.task import HeadConfig

SINGLE = HeadConfig(column="q", labels=("a", "b", "c"), loss_weight=2.0)
MULTI = HeadConfig(kind="multi", column="t", labels=("x", "y"))
ASPECT = HeadConfig(kind="aspect", column="s", aspects=("food", "staff"), labels=("good",))


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def both_ways(p: list[float], q: list[float]) -> float:
    return kl(p, q) + kl(q, p)


def test_single_by_hand() -> None:
    p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
    one, other = (torch.tensor([each, [1 / 3] * 3]).log() for each in (p, q))
    loss = r_drop_loss(one, other, head_slices({"q": SINGLE}), n_items=2)
    assert float(loss) == pytest.approx(2.0 * both_ways(p, q) / 4 / 2, rel=1e-5)


def test_multi_by_hand() -> None:
    one, other = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, -1.0]])
    p, q = ([[float(v), 1 - float(v)] for v in logits.sigmoid()[0]] for logits in (one, other))
    loss = r_drop_loss(one, other, head_slices({"t": MULTI}), n_items=1)
    wanted = sum(both_ways(a, b) for a, b in zip(p, q, strict=True)) / 2 / 4
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_aspect_by_hand() -> None:
    p, q = [[0.9, 0.1], [0.4, 0.6]], [[0.7, 0.3], [0.4, 0.6]]
    one, other = (torch.tensor([each[0] + each[1]]).log() for each in (p, q))
    loss = r_drop_loss(one, other, head_slices({"s": ASPECT}), n_items=1)
    assert float(loss) == pytest.approx(both_ways(p[0], q[0]) / 2 / 4, rel=1e-5)


def test_equal_passes_cost_nothing_and_parts_add_up() -> None:
    heads = head_slices({"q": SINGLE, "t": MULTI, "s": ASPECT})
    torch.manual_seed(0)
    one, other = torch.randn(2, 6, 9)
    assert float(r_drop_loss(one, one, heads, n_items=6)) == 0.0
    whole = r_drop_loss(one, other, heads, n_items=6)
    parts = [
        r_drop_loss(one[part], other[part], heads, n_items=6) for part in ([0, 1], [2, 3, 4, 5])
    ]
    assert float(whole) > 0
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-5)


def test_both_passes_learn() -> None:
    one, other = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    r_drop_loss(one, other, head_slices({"q": SINGLE}), n_items=3).backward()  # type: ignore[no-untyped-call]
    for logits in (one, other):
        assert logits.grad is not None
        assert float(logits.grad.abs().sum()) > 0
