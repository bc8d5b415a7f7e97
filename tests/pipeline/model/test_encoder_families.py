"""Every family of encoders: forward, a step of training, and the exported graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.batch import window_inputs
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import head_slices
from pipeline.model.batches import tensor_inputs
from pipeline.model.dense_attention import DenseAttention, dense_attention
from pipeline.model.export import export_onnx
from pipeline.model.gate import TorchEncoder
from pipeline.model.losses import HeadLosses
from pipeline.model.network import Classifier
from pipeline.model.window_pooling import pool_windows
from pipeline.window import Window
from schemas.task import HeadConfig, TrainConfig, WindowPooling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.network import Pooling

    MakeEncoder = Callable[..., nn.Module]

HEADS = head_slices(
    {
        "queue": HeadConfig(column="q", labels=("a", "b", "c")),
        "tags": HeadConfig(kind="multi", column="t", labels=("x", "y")),
        "mood": HeadConfig(kind="aspect", column="m", labels=("good",), aspects=("food", "staff")),
    }
)
N_LOGITS = HEADS[-1].columns.stop
PAD_ID = 1
TARGETS = {
    "queue": torch.tensor([0, 2]),
    "tags": torch.tensor([[1.0, 0.0], [float("nan")] * 2]),
    "mood": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
}


def classifier(
    encoder: nn.Module, *, pooling: Pooling = "mean", window_pooling: WindowPooling = "mean"
) -> Classifier:
    model = Classifier(
        encoder, n_logits=N_LOGITS, pooling=pooling, dropout=0.0, window_pooling=window_pooling
    )
    nn.init.normal_(model.heads.weight, std=1.0)
    return model.eval()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_padding_moves_no_logit(
    family: str, pooling: Pooling, family_encoder: MakeEncoder, some_windows: list[Window]
) -> None:
    encoder = TorchEncoder(classifier(family_encoder(family), pooling=pooling))
    together = encoder.run(window_inputs(some_windows, pad_id=PAD_ID, multiple=8))
    assert together.shape == (3, N_LOGITS)
    np.testing.assert_allclose(together, encoder.logits(some_windows), atol=1e-4)
    assert np.ptp(together, axis=0).min() > 1e-2


def test_a_step_of_training_lowers_the_loss(
    family: str, family_encoder: MakeEncoder, some_windows: list[Window]
) -> None:
    config = TrainConfig(window_pooling="attention", focal_gamma=1.0, label_smoothing=0.1)
    model = classifier(family_encoder(family), window_pooling="attention").train()
    losses = HeadLosses(HEADS, config, {name: t.numpy() for name, t in TARGETS.items()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = tensor_inputs(model, some_windows, pad_id=PAD_ID)

    def loss() -> torch.Tensor:
        pooled = pool_windows(
            model(**inputs), torch.tensor([0, 0, 1]), torch.tensor([5, 23, 11]), n_records=2,
            how="attention",
        )  # fmt: skip
        return losses(pooled, TARGETS)

    torch.manual_seed(0)
    before = loss()
    before.backward()  # type: ignore[no-untyped-call]
    moved = [p for p in model.parameters() if p.grad is not None and p.grad.any()]
    assert all(torch.isfinite(p.grad).all() for p in moved if p.grad is not None)
    assert len(moved) > 12  # the encoder's layers, and not only the heads
    optimizer.step()
    torch.manual_seed(0)
    assert float(loss().detach()) < float(before.detach())


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_exported_graph_agrees(
    family: str, pooling: Pooling, family_encoder: MakeEncoder, some_windows: list[Window],
    tmp_path: Path,
) -> None:  # fmt: skip
    model = classifier(family_encoder(family), pooling=pooling, window_pooling="attention")
    export_onnx(model, tmp_path / "model.onnx")
    exported, reference = OnnxEncoder(tmp_path / "model.onnx"), TorchEncoder(model)
    np.testing.assert_allclose(
        exported.logits(some_windows), reference.logits(some_windows), atol=1e-4
    )
    for length in (1, 9, 40):
        some = [Window((2, *range(5, 3 + length), 3)[:length], (0,) * length, 0, 1)] * 2
        inputs = window_inputs([*some, some_windows[0]], pad_id=PAD_ID)
        np.testing.assert_allclose(exported.run(inputs), reference.run(inputs), atol=1e-4)
    assert exported.logits(some_windows).shape == (3, N_LOGITS + 1)


def test_a_longformer_is_read_from_its_first_token(
    family_encoder: MakeEncoder, some_windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier(family_encoder("longformer"))
    seen: list[torch.Tensor] = []
    forward = model.encoder.forward

    def watched(**inputs: torch.Tensor) -> Any:
        seen.append(inputs["global_attention_mask"])
        return forward(**inputs)

    monkeypatch.setattr(model.encoder, "forward", watched)
    TorchEncoder(model).run(window_inputs(some_windows, pad_id=PAD_ID))
    assert seen[0].tolist() == [[1] + [0] * 22] * 3


def test_attention_without_chunks_is_a_longformers_own(family_encoder: MakeEncoder) -> None:
    model = classifier(family_encoder("longformer"))
    encoder = TorchEncoder(model)
    chooser = np.random.default_rng(4)
    for rows, length in ((1, 1), (2, 5), (2, 8), (3, 23), (2, 40)):
        inputs = {
            "input_ids": chooser.integers(5, 64, (rows, length)),
            "attention_mask": np.ones((rows, length), dtype=np.int64),
        }
        inputs["attention_mask"][-1, (length + 1) // 2 :] = 0
        chunked = encoder.run(inputs)
        with dense_attention(model.encoder):
            dense = encoder.run(inputs)
        np.testing.assert_allclose(dense, chunked, atol=1e-4)
        np.testing.assert_array_equal(encoder.run(inputs), chunked)  # it is put back


def test_a_longformer_looks_no_further_than_its_window(family_encoder: MakeEncoder) -> None:
    """Without the first token's help, or the dense form would be a plain transformer."""
    far, near = (
        dense_reach(family_encoder("longformer"), place)
        for place in (20, 4)  # the window is 8 tokens wide, 4 to a side
    )
    assert not far
    assert near


def dense_reach(longformer: Any, place: int) -> bool:
    """Whether the token at `place` changes the local attention of the first one."""
    attention = longformer.encoder.layer[0].attention.self
    hidden = torch.randn(1, 24, 16, generator=torch.Generator().manual_seed(1))
    nothing = torch.zeros(1, 24, dtype=torch.bool)
    dense = DenseAttention(attention)
    with torch.no_grad():
        (before,) = dense(hidden, is_index_masked=nothing, is_index_global_attn=nothing)
        hidden[0, place] += 1.0
        (after,) = dense(hidden, is_index_masked=nothing, is_index_global_attn=nothing)
    return bool((before[0, 0] != after[0, 0]).any())
