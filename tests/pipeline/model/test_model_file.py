"""Weights that are too many for one file lie beside it, from the export to the bundle."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model import half, quantize
from pipeline.model.bundling import _place_files
from pipeline.model.export import export_onnx
from pipeline.model.fused_operators import optimised_operators
from pipeline.model.half import convert_to_half
from pipeline.model.model_file import model_files, save_model, weight_bytes
from pipeline.model.quantize import (
    prepare_for_quantization,
    quantize_to_blocks,
    quantize_to_dynamic,
    quantize_to_static,
)
from pipeline.window import Window
from schemas.bundle import DATA_FILE, MODEL_FILE, TOKENIZER_FILE
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.model.network import Classifier

WINDOWS = [Window((2, *range(5, 5 + n), 3), (0,) * (n + 2), 0, 1) for n in (1, 3, 9, 20)]
SMALL = 10_000


@pytest.fixture
def large(tiny_model: Classifier, tmp_path: Path) -> Path:
    """A model that counts as too large for one file."""
    folder = tmp_path / "fp32"
    folder.mkdir()
    export_onnx(tiny_model, folder / MODEL_FILE, max_weight_bytes=SMALL)
    return folder / MODEL_FILE


def test_weights_lie_beside_the_graph_and_answer_the_same(
    large: Path, tiny_model: Classifier, tmp_path: Path
) -> None:
    assert sorted(path.name for path in large.parent.iterdir()) == [MODEL_FILE, DATA_FILE]
    assert model_files(large) == (large, large.with_name(DATA_FILE))
    whole = tmp_path / "whole.onnx"
    export_onnx(tiny_model, whole)
    assert model_files(whole) == (whole,)
    assert large.stat().st_size < whole.stat().st_size / 2
    assert large.with_name(DATA_FILE).stat().st_size > SMALL
    wanted, got = (OnnxEncoder(path).logits(WINDOWS) for path in (whole, large))
    assert np.array_equal(wanted, got)
    assert optimised_operators(large) == optimised_operators(whole)


def test_a_smaller_model_in_the_same_place_leaves_no_data_behind(large: Path) -> None:
    model = onnx.load(str(large))
    assert weight_bytes(model) > SMALL
    save_model(model, large)
    assert model_files(large) == (large,)
    save_model(model, large, max_weight_bytes=SMALL)
    size = large.with_name(DATA_FILE).stat().st_size
    save_model(onnx.load(str(large)), large, max_weight_bytes=SMALL)
    assert large.with_name(DATA_FILE).stat().st_size == size  # not appended to


def test_a_bundle_lists_the_data_file_and_can_be_moved(large: Path, tmp_path: Path) -> None:
    tokenizer = tmp_path / "tok.json"
    tokenizer.write_text("{}")
    files = _place_files(tmp_path / "bundle", model=large, tokenizer=tokenizer)
    assert sorted(files) == [MODEL_FILE, DATA_FILE, TOKENIZER_FILE]
    assert files[DATA_FILE] == digest_of_file(large.with_name(DATA_FILE))
    wanted = OnnxEncoder(large).logits(WINDOWS)
    shutil.rmtree(large.parent)
    assert np.array_equal(OnnxEncoder(tmp_path / "bundle" / MODEL_FILE).logits(WINDOWS), wanted)


@pytest.mark.parametrize("fits", [True, False], ids=["one file", "two files"])
@pytest.mark.parametrize("variant", ["dynamic", "static", "blocks", "half"])
def test_variants_are_made_of_a_large_model_too(
    variant: str, fits: bool, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fits:
        for module in (quantize, half):
            monkeypatch.setattr(module, "save_model", partial(save_model, max_weight_bytes=2000))
    folders = [tmp_path / name for name in ("prepared", "variant")]
    for folder in folders:
        folder.mkdir()
    prepared, target = (folder / MODEL_FILE for folder in folders)
    prepare_for_quantization(large, prepared)
    assert prepared.with_name(DATA_FILE).exists()
    if variant == "dynamic":
        quantize_to_dynamic(prepared, target)
    elif variant == "static":
        names = OnnxEncoder(large).input_names
        quantize_to_static(
            prepared, target, calibration=WINDOWS, input_names=names, method="percentile"
        )
    elif variant == "blocks":
        quantize_to_blocks(prepared, target, bits=8)
    else:
        convert_to_half(large, target)
    wanted, got = (OnnxEncoder(path).logits(WINDOWS) for path in (large, target))
    assert np.abs(wanted - got).max() < 0.5 * np.ptp(wanted)
    assert len(model_files(target)) == (1 if fits else 2)
