"""Windows into records: against a plain loop, against scoring, and what has no say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.heads import pool_logits
from pipeline.model.window_pooling import pool_windows

if TYPE_CHECKING:
    from schemas.task import WindowPooling

WAYS: tuple[WindowPooling, ...] = ("mean", "max", "first", "attention")
ways = pytest.mark.parametrize("how", WAYS)
COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=6)


def windows_of(
    counts: list[int], seed: int, *, columns: int = 3
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, records and tokens of windows, records one after another."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    logits = torch.randn(len(rows), columns, generator=generator) * 3
    return logits, rows, torch.randint(1, 60, (len(rows),), generator=generator)


def plain_loop(logits: torch.Tensor, n_tokens: torch.Tensor, how: WindowPooling) -> torch.Tensor:
    """One record, as anyone would write it."""
    if how == "attention":
        weights = torch.softmax(logits[:, -1], dim=0)
        return sum((w * z for w, z in zip(weights, logits[:, :-1], strict=True)), torch.zeros(()))
    if how == "max":
        return torch.stack([column.max() for column in logits.T])
    if how == "first":
        return logits[0]
    return sum((n * z for n, z in zip(n_tokens, logits, strict=True)), torch.zeros(())) / sum(
        n_tokens
    )


@ways
@given(COUNTS, st.integers(0, 1000), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=25)
def test_it_is_the_plain_loop_whatever_the_order(
    how: WindowPooling, counts: list[int], seed: int, chooser: object
) -> None:
    logits, rows, n_tokens = windows_of(counts, seed)
    expected = torch.stack(
        [plain_loop(logits[rows == row], n_tokens[rows == row], how) for row in range(len(counts))]
    )
    got = pool_windows(logits, rows, n_tokens, n_records=len(counts), how=how)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    order = list(range(len(rows)))
    chooser.shuffle(order)  # type: ignore[attr-defined]
    if how != "first":
        mixed = pool_windows(
            logits[order], rows[order], n_tokens[order], n_records=len(counts), how=how
        )
        torch.testing.assert_close(mixed, expected, atol=1e-5, rtol=1e-5)


@ways
@given(COUNTS, st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_training_pools_as_scoring_does(how: WindowPooling, counts: list[int], seed: int) -> None:
    logits, rows, n_tokens = windows_of(counts, seed)
    trained = pool_windows(logits, rows, n_tokens, n_records=len(counts), how=how)
    for row in range(len(counts)):
        mine = (rows == row).numpy()
        scored = pool_logits(logits.numpy().astype(np.float64)[mine], n_tokens.numpy()[mine], how)
        np.testing.assert_allclose(trained[row].numpy(), scored, atol=1e-5)


def test_one_window_is_its_record_in_every_way() -> None:
    logits, rows, n_tokens = windows_of([1, 1, 1], seed=2)
    for how in WAYS:
        got = pool_windows(logits, rows, n_tokens, n_records=3, how=how)
        assert torch.equal(got, logits[:, :-1] if how == "attention" else logits)


@ways
def test_a_record_without_windows_has_zeros(how: WindowPooling) -> None:
    logits, _, n_tokens = windows_of([2], seed=3)
    got = pool_windows(logits, torch.tensor([1, 1]), n_tokens, n_records=3, how=how)
    assert got[0].tolist() == got[2].tolist() == [0.0] * got.shape[1]
    assert got[1].abs().min() > 0
    assert pool_windows(
        logits[:0], torch.tensor([], dtype=torch.int64), n_tokens[:0], n_records=0, how=how
    ).shape == (0, got.shape[1])


@ways
def test_gradients_are_right(how: WindowPooling) -> None:
    logits, rows, n_tokens = windows_of([1, 3, 2], seed=4)
    logits = logits.double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda some: pool_windows(some, rows, n_tokens, n_records=3, how=how), (logits,)
    )


@ways
def test_a_record_moves_no_window_of_another(how: WindowPooling) -> None:
    logits, rows, n_tokens = windows_of([2, 3, 1], seed=5)
    logits.requires_grad_()
    pooled = pool_windows(logits, rows, n_tokens, n_records=3, how=how)
    pooled[1].sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert not logits.grad[rows != 1].any()
    assert logits.grad[rows == 1].any()


def test_only_the_first_window_is_learned_from_where_only_it_is_read() -> None:
    logits, rows, n_tokens = windows_of([2, 3], seed=6)
    logits.requires_grad_()
    pool_windows(logits, rows, n_tokens, n_records=2, how="first").sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]


def test_the_weight_of_a_window_is_learned() -> None:
    logits = torch.tensor([[2.0, 0.0], [-2.0, 0.0]]).requires_grad_()
    rows, n_tokens = torch.tensor([0, 0]), torch.tensor([9, 9])
    pool_windows(logits, rows, n_tokens, n_records=1, how="attention").sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    # d/ds1 of sigmoid(s1 - s2) * 2 - (1 - sigmoid) * 2 at equal weights is 4 * 1/4.
    assert logits.grad.tolist() == [[0.5, 1.0], [0.5, -1.0]]


def test_great_weights_overflow_nothing() -> None:
    logits = torch.tensor([[1.0, 1e4], [3.0, 1e4 - 200], [5.0, -1e4]])
    got = pool_windows(logits, torch.tensor([0, 0, 1]), torch.ones(3), n_records=2, how="attention")
    assert got.flatten().tolist() == [1.0, 5.0]
