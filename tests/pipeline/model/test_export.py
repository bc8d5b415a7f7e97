from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from torch import Tensor, nn

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.batches import takes_segments
from pipeline.model.export import check_shapes, export_onnx
from pipeline.model.gate import TorchEncoder, parity_gate
from pipeline.model.gate_inputs import parity_batches
from pipeline.model.network import Classifier
from pipeline.window import Window
from schemas.errors import ArtifactError
from schemas.task import CompressConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    MakeEncoder = Callable[..., nn.Module]

WITHOUT_SEGMENTS = ("input_ids", "attention_mask")
WINDOWS = [
    Window((2, *range(start, start + length), 3), (0,) * 5 + (1,) * (length - 3), 0, 1)
    for start, length in ((10, 3), (20, 12), (5, 40), (7, 30))
]


def classifier(encoder: nn.Module) -> Classifier:
    model = Classifier(encoder, n_logits=5, pooling="mean", dropout=0.0)
    nn.init.normal_(model.heads.weight, std=1.0)
    return model.eval()


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "distilbert"])
def test_inputs_follow_forward_and_logits_agree(
    family: str, family_encoder: MakeEncoder, tmp_path: Path
) -> None:
    model = classifier(family_encoder(family))
    names = export_onnx(model, tmp_path / "model.onnx")
    segments = ("token_type_ids",) if family == "bert" else ()
    assert names == WITHOUT_SEGMENTS + segments
    assert takes_segments(model) == (family == "bert")
    encoder, reference = OnnxEncoder(tmp_path / "model.onnx"), TorchEncoder(model)
    assert encoder.input_names == names
    chooser = np.random.default_rng(0)
    for rows in (1, 2, 5):
        for length in (1, 9, 64):
            inputs = {
                "input_ids": chooser.integers(5, 64, (rows, length)),
                "attention_mask": np.ones((rows, length), dtype=np.int64),
                "token_type_ids": chooser.integers(0, 2, (rows, length)),
            }
            inputs["attention_mask"][-1, (length + 1) // 2 :] = 0
            got = encoder.run(inputs)
            assert got.shape == (rows, 5)
            np.testing.assert_allclose(got, reference.run(inputs), atol=1e-4)
    gate = parity_gate(reference, encoder, parity_batches(WINDOWS, pad_id=1),
                       config=CompressConfig())  # fmt: skip
    assert gate.passed
    assert gate.value < 1e-4


class Swapped(Classifier):
    """What an exporter that names inputs by position makes of a wrongly ordered call."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        assert token_type_ids is not None
        return super().forward(input_ids, token_type_ids, attention_mask)


def test_swapped_mask_and_segments_do_not_pass_the_parity_gate(
    family_encoder: MakeEncoder, tmp_path: Path
) -> None:
    model = classifier(family_encoder("bert"))
    swapped = Swapped(model.encoder, n_logits=5, pooling="mean", dropout=0.0)
    swapped.load_state_dict(model.state_dict())
    assert export_onnx(swapped, tmp_path / "model.onnx")[1:] == ("attention_mask", "token_type_ids")
    gate = parity_gate(
        TorchEncoder(model), OnnxEncoder(tmp_path / "model.onnx"),
        parity_batches(WINDOWS, pad_id=0), config=CompressConfig(),
    )  # fmt: skip
    assert not gate.passed
    assert gate.value > 0.01
    assert re.fullmatch(r"fp32 parity: \d\S+ <= 0\.001 FAILED", str(gate))


def test_an_exporter_that_drops_an_input_is_caught(
    family_encoder: MakeEncoder, tmp_path: Path
) -> None:
    class Deaf(Classifier):
        def forward(
            self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
        ) -> Tensor:
            del token_type_ids
            return super().forward(input_ids, attention_mask)

    deaf = Deaf(classifier(family_encoder("bert")).encoder, n_logits=5, pooling="mean", dropout=0.0)
    with pytest.raises(ArtifactError, match=r"exported inputs are \('input_ids', 'attention_m"):
        export_onnx(deaf, tmp_path / "model.onnx")


def test_batch_and_length_stay_free_in_the_graph(
    family_encoder: MakeEncoder, tmp_path: Path
) -> None:
    export_onnx(classifier(family_encoder("bert")), tmp_path / "model.onnx")
    graph = onnx.load(str(tmp_path / "model.onnx")).graph
    for node in graph.input:
        assert [axis.dim_param for axis in node.type.tensor_type.shape.dim] == ["batch", "length"]
    assert [node.name for node in graph.output] == ["logits"]


class Frozen(OnnxEncoder):
    """A graph in which an exporter has written down the length or the batch of its example."""

    def __init__(self, path: Path, *, rows: int | None = None, length: int | None = None) -> None:
        super().__init__(path)
        self.frozen = (rows, length)

    def run(self, inputs: dict[str, Any]) -> Any:
        logits = super().run(inputs)
        rows, length = self.frozen
        if length is not None and inputs["input_ids"].shape[1] != length:
            raise RuntimeError("Got invalid dimensions for input")
        return logits if rows is None else np.resize(logits, (rows, logits.shape[1]))


def test_failure_31_a_frozen_batch_or_length_is_refused(
    family_encoder: MakeEncoder, tmp_path: Path
) -> None:
    export_onnx(classifier(family_encoder("bert")), tmp_path / "model.onnx")
    check_shapes(OnnxEncoder(tmp_path / "model.onnx"))
    with pytest.raises(ArtifactError, match=r"fails on batch 1, length 1: Got invalid dim"):
        check_shapes(Frozen(tmp_path / "model.onnx", length=9))
    with pytest.raises(
        ArtifactError, match=r"answers \(2, 5\) on batch 1, length 1, expected 1 row"
    ):
        check_shapes(Frozen(tmp_path / "model.onnx", rows=2))
    with pytest.raises(
        ArtifactError, match=r"answers \(1, 5\) on batch 2, length 1, expected 2 row"
    ):
        check_shapes(Frozen(tmp_path / "model.onnx", rows=1))
