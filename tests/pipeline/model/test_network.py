from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pipeline.batch import window_inputs
from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier
from pipeline.model.gate import TorchEncoder
from pipeline.model.network import check_length, head_loss, known_counts
from schemas.errors import ConfigError
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

HEADS = head_slices(
    {
        "queue": HeadConfig(column="queue", labels=("a", "b")),
        "tags": HeadConfig(kind="multi", column="tags", labels=("x", "y"), loss_weight=2.0),
    }
)
NAN = float("nan")


def targets(queue: list[int], tags: list[list[float]]) -> dict[str, torch.Tensor]:
    return {"queue": torch.tensor(queue), "tags": torch.tensor(tags)}


def test_loss_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), 0.0, math.log(3.0)]])
    loss = head_loss(logits, targets([1], [[1.0, 0.0]]), HEADS, smoothing=0.0)
    queue = -math.log(3 / 4)
    tags = (math.log(2) + -math.log(1 / 4)) / 2
    assert float(loss) == pytest.approx(queue + 2.0 * tags, abs=1e-6)


def test_smoothing_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0), 0.0, 0.0]])
    loss = head_loss(logits, targets([1], [[NAN, NAN]]), HEADS, smoothing=0.2)
    assert float(loss) == pytest.approx(-(0.9 * math.log(3 / 4) + 0.1 * math.log(1 / 4)), abs=1e-6)


def test_rows_without_a_label_have_no_gradient_in_that_head() -> None:
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    wanted = targets([0, -100, 1], [[1.0, 0.0], [0.0, 1.0], [NAN, NAN]])
    head_loss(logits, wanted, HEADS, smoothing=0.1).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    touched = logits.grad != 0
    assert touched.tolist() == [[True] * 4, [False, False, True, True], [True, True, False, False]]
    assert torch.isfinite(logits.grad).all()


def test_missing_rows_do_not_thin_the_mean() -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0]])
    with_missing = targets([0, -100], [[1.0, 1.0], [NAN, NAN]])
    alone = head_loss(logits[:1], targets([0], [[1.0, 1.0]]), HEADS, smoothing=0.0)
    assert float(head_loss(logits, with_missing, HEADS, smoothing=0.0)) == pytest.approx(
        float(alone), abs=1e-6
    )


def test_no_label_at_all_is_zero_loss_that_can_go_backward() -> None:
    logits = torch.randn(2, 4).requires_grad_()
    loss = head_loss(logits, targets([-100, -100], [[NAN, NAN]] * 2), HEADS, smoothing=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_shares_add_up_to_the_loss_of_the_whole() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
    wanted = targets([0, -100, 1, -100, 0], [[1.0, 0.0], [NAN, NAN], [NAN, NAN], [0.0, 0.0]] * 1
                     + [[1.0, 1.0]])  # fmt: skip
    counts = known_counts(wanted)
    assert counts == {"queue": 3, "tags": 6}
    whole = head_loss(logits, wanted, HEADS, smoothing=0.1)
    shares = [
        head_loss(
            logits[rows], {name: rows_of[rows] for name, rows_of in wanted.items()}, HEADS,
            smoothing=0.1, counts=counts,
        )
        for rows in (slice(0, 2), slice(2, 5))
    ]  # fmt: skip
    assert float(sum(shares)) == pytest.approx(float(whole), abs=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_padding_changes_no_logit(
    pooling: str,
    toy_config: Callable[..., TrainConfig],
    toy_heads: tuple[HeadSlice, ...],
    toy_examples: list[Example],
) -> None:
    encoder = TorchEncoder(new_classifier(toy_config(pooling=pooling), toy_heads))
    windows = [example.windows[0] for example in toy_examples[:8]]
    padded = encoder.run(window_inputs(windows, multiple=16))
    np.testing.assert_allclose(padded, encoder.logits(windows), atol=1e-5)
    assert np.ptp(padded, axis=0).min() > 1e-2  # the rows do differ, so equality says something


def test_pooling_takes_what_it_says(tiny_model: Classifier, toy_examples: list[Example]) -> None:
    inputs = {
        name: torch.from_numpy(array)
        for name, array in window_inputs([toy_examples[0].windows[0]]).items()
    }
    with torch.no_grad():
        hidden = tiny_model.encoder(**inputs).last_hidden_state
        mean = tiny_model(**inputs)
        tiny_model.pooling = "cls"
        first = tiny_model(**inputs)
    torch.testing.assert_close(mean, tiny_model.heads(hidden.mean(dim=1)))
    torch.testing.assert_close(first, tiny_model.heads(hidden[:, 0]))


def test_a_fully_masked_row_gives_numbers(
    tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    inputs = window_inputs([example.windows[0] for example in toy_examples[:2]])
    inputs["attention_mask"][1] = 0
    logits = TorchEncoder(tiny_model).run(inputs)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(logits[1], tiny_model.heads.bias.detach().numpy(), atol=1e-6)


def test_windows_longer_than_the_backbone_reads_are_a_config_error(tiny_model: Classifier) -> None:
    check_length(tiny_model, max_tokens=512)
    with pytest.raises(
        ConfigError, match=r"window\.max_tokens 513 is more than the backbone reads"
    ):
        check_length(tiny_model, max_tokens=513)
