from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pipeline.model.adversarial import EmbeddingAdversary

if TYPE_CHECKING:
    from pipeline.model.network import Classifier


@pytest.fixture
def embeddings(tiny_model: Classifier) -> torch.nn.Parameter:
    weight: torch.nn.Parameter = tiny_model.encoder.get_input_embeddings().weight  # type: ignore[operator]
    return weight


def test_embeddings_move_along_the_gradient_and_come_back_to_the_bit(
    tiny_model: Classifier, embeddings: torch.nn.Parameter
) -> None:
    before = embeddings.detach().clone()
    embeddings.grad = torch.zeros_like(embeddings)
    embeddings.grad[5, 0], embeddings.grad[6, 1] = 3.0, -4.0
    with EmbeddingAdversary(tiny_model.encoder, epsilon=0.5).moved():
        moved = (embeddings - before).detach()
        assert moved[5, 0] == pytest.approx(0.5 * 3 / 5, abs=1e-6)
        assert moved[6, 1] == pytest.approx(-0.5 * 4 / 5, abs=1e-6)
        assert float(moved.norm()) == pytest.approx(0.5, abs=1e-6)
        assert int((moved != 0).sum()) == 2
    assert torch.equal(embeddings, before)


@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_a_gradient_without_direction_moves_nothing(
    value: float, tiny_model: Classifier, embeddings: torch.nn.Parameter
) -> None:
    before = embeddings.detach().clone()
    embeddings.grad = torch.full_like(embeddings, value)
    with EmbeddingAdversary(tiny_model.encoder, epsilon=0.5).moved():
        assert torch.equal(embeddings, before)


def test_they_come_back_after_an_error_too(
    tiny_model: Classifier, embeddings: torch.nn.Parameter
) -> None:
    before = embeddings.detach().clone()
    embeddings.grad = torch.ones_like(embeddings)
    moved = EmbeddingAdversary(tiny_model.encoder, epsilon=0.5).moved()
    moved.__enter__()
    assert not torch.equal(embeddings, before)
    error = ValueError("stop")
    assert not moved.__exit__(ValueError, error, None)
    assert torch.equal(embeddings, before)


def test_without_a_gradient_it_says_what_is_missing(tiny_model: Classifier) -> None:
    adversary = EmbeddingAdversary(tiny_model.encoder, epsilon=0.5)
    with pytest.raises(RuntimeError, match="no gradient: go backward"), adversary.moved():
        pass
