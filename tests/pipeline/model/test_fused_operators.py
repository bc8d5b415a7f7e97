"""Every family of encoders is put together as it should be, and it is noticed where one is not."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pipeline.model.export import describe_export, export_onnx
from pipeline.model.fused_operators import (
    FAMILIES,
    check_fusions,
    missing_fusions,
    operators,
    optimised_operators,
)
from pipeline.model.half import convert_to_half
from pipeline.model.network import Classifier
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn


def exported(encoder: nn.Module, folder: Path) -> Path:
    model = Classifier(encoder, n_logits=3, pooling="mean", dropout=0.0)
    export_onnx(model.eval(), folder / "model.onnx")
    return folder / "model.onnx"


def test_each_family_that_is_asserted_is_tested(families: tuple[str, ...]) -> None:
    assert set(families) == set(FAMILIES)


def test_norms_gelu_and_attention_are_fused(
    family: str, family_encoder: Callable[..., Any], tmp_path: Path
) -> None:
    encoder = family_encoder(family)
    path = exported(encoder, tmp_path)
    found = optimised_operators(path)
    check_fusions(found, encoder.config, target="cpu")
    assert found["Gelu"] == 2
    assert found["LayerNormalization"] == 5
    assert found["FusedMatMul"] >= 2
    # Kernels that are slower than what they replace stay out, see docs/DECISIONS.md.
    assert not found.keys() & {"SkipLayerNormalization", "BiasGelu", "Attention"}
    half = operators(convert_to_half(path, tmp_path / "half.onnx"))
    check_fusions(half, encoder.config, target="gpu")
    assert half["LayerNormalization"] + half["SkipLayerNormalization"] == 5


def config(**changes: Any) -> Any:
    return SimpleNamespace(
        **{"model_type": "bert", "num_hidden_layers": 2, "hidden_act": "gelu"} | changes
    )


FUSED = {"LayerNormalization": 4, "Gelu": 2, "FusedMatMul": 2}


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (FUSED, []),
        (FUSED | {"Gelu": 0, "Erf": 2}, ["0 GELU, expected 2", "2 Erf left over from norms or G"]),
        (FUSED | {"LayerNormalization": 3}, ["3 layer norms, expected 4"]),
        (FUSED | {"LayerNormalization": 1, "SkipLayerNormalization": 3}, []),
        (FUSED | {"FusedMatMul": 1, "Attention": 0}, ["1 scaled attention products, expected 2"]),
        (FUSED | {"FusedMatMul": 0, "Attention": 2}, []),
    ],
)
def test_what_is_missing_is_named(found: dict[str, int], missing: list[str]) -> None:
    got = missing_fusions(found, config(), target="cpu")
    assert len(got) == len(missing)
    assert all(mine.startswith(theirs) for mine, theirs in zip(got, missing, strict=True))


def test_another_activation_is_not_waited_for() -> None:
    relu = config(hidden_act="relu")
    assert missing_fusions(FUSED | {"Gelu": 0}, relu, target="cpu") == []
    distilbert = config(hidden_act=None, activation="gelu")
    assert missing_fusions(FUSED | {"Gelu": 0}, distilbert, target="cpu") == ["0 GELU, expected 2"]


def test_a_known_family_fails_and_another_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        ArtifactError, match=r"bert encoder, graph for the cpu: 0 GELU, expected 2; install the ver"
    ):
        check_fusions(FUSED | {"Gelu": 0}, config(), target="cpu")
    with caplog.at_level(logging.WARNING):
        check_fusions(FUSED | {"Gelu": 0}, config(model_type="novel"), target="cpu")
    assert "novel encoder, graph for the cpu: 0 GELU, expected 2: it scores rightly" in caplog.text


def test_the_export_is_described(family_encoder: Callable[..., nn.Module], tmp_path: Path) -> None:
    export = describe_export(exported(family_encoder("bert"), tmp_path))
    assert (export.opset, export.producer.split()[0]) == (17, "pytorch")
    assert export.exporters["torch"] == torch.__version__
    assert set(export.exporters) == {"torch", "transformers", "onnx"}
    assert export.operators["Gelu"] == 2
