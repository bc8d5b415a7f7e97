"""Ranges come from all windows and no padding, and what is kept of a window does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.calibrate import HistogramCollector, MinMaxCalibrater

from pipeline.model import calibrate
from pipeline.model.calibrate import measure_ranges
from pipeline.window import Window

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(200, dtype=np.float32)[:, None] / 10  # token 150 stands for 15.0


def window(*ids: int) -> Window:
    return Window(ids, (0,) * len(ids), 0, 1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Each token's own value times two: `looked_up (B, T, 1)`, then `doubled`."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["looked_up"], name="look"),
            helper.make_node("MatMul", ["looked_up", "two"], ["doubled"], name="double"),
        ],
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["B", "T"])],
        [helper.make_tensor_value_info("doubled", TensorProto.FLOAT, ["B", "T", 1])],
        [
            numpy_helper.from_array(VALUES, "table"),
            numpy_helper.from_array(np.array([[2.0]], np.float32), "two"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(made), str(tmp_path / "model.onnx"))
    return tmp_path / "model.onnx"


def ranges(model: Path, windows: list[Window], method: Any) -> dict[str, tuple[float, float]]:
    found = measure_ranges(model, windows, ["input_ids"], method=method)
    spans = {name: np.ravel(data.range_value).tolist() for name, data in found.items()}
    return {name: (low, high) for name, (low, high) in spans.items()}


def test_minmax_spans_all_windows(model: Path) -> None:
    found = ranges(model, [window(20, 30), window(10, 60, 40), window(50)], "minmax")
    assert found["looked_up"] == (1.0, 6.0)
    assert found["doubled"] == (2.0, 12.0)


def test_percentile_leaves_out_what_is_rarer(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_PERCENTILE", 90.0)
    windows = [window(*[100] * 98, 199, 0), window(*[100, 90, 80, 110] * 25)]
    low, high = ranges(model, windows, "percentile")["looked_up"]
    assert 7.9 <= low <= 8.0  # one bin of 2048 below the value at which 5 % begin
    assert 10.9 <= high <= 11.0  # as much below that at which 5 % are left
    assert ranges(model, windows, "minmax")["looked_up"] == (0.0, pytest.approx(19.9))


def test_entropy_cuts_a_single_outlier_off(model: Path) -> None:
    chooser = np.random.default_rng(2)
    windows = [window(*chooser.integers(20, 60, 150).tolist()) for _ in range(20)] + [window(199)]
    low, high = ranges(model, windows, "entropy")["looked_up"]
    assert 5.9 <= high < 19.9
    assert low == 2.0


def test_an_activation_of_zeros_has_a_range(model: Path) -> None:
    for method in ("minmax", "percentile", "entropy"):
        low, high = ranges(model, [window(0, 0)], method)["looked_up"]
        assert abs(low) < 1e-30
        assert abs(high) < 1e-30


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_failure_49_windows_of_any_lengths_are_counted_together(model: Path, method: str) -> None:
    """ONNX Runtime's own way stacks the activations of all texts, which must be of one shape."""
    windows = [window(*range(10, 10 + length)) for length in (1, 7, 100, 3)]
    low, high = ranges(model, windows, method)["looked_up"]
    assert (low, high) == (1.0, pytest.approx(10.9, abs=0.05))


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_failure_27_no_activation_outlives_its_window(
    method: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    collect, count = MinMaxCalibrater.collect_data, calibrate._count

    def watched(calibrater: MinMaxCalibrater, reader: Any) -> None:
        collect(calibrater, reader)
        kept.append(len(calibrater.intermediate_outputs))

    def counted(collector: HistogramCollector, values: Any) -> None:
        count(collector, values)
        sizes.add(sum(each[0].size + each[1].size for each in collector.histogram_dict.values()))

    sizes: set[int] = set()
    monkeypatch.setattr(MinMaxCalibrater, "collect_data", watched)
    monkeypatch.setattr(calibrate, "_count", counted)
    # Each window holds larger values than any before it: histograms that grow would grow here.
    measure_ranges(model, [window(n) for n in range(1, 41)], ["input_ids"], method=method)
    assert kept == [0] * 40
    assert sizes == (set() if method == "minmax" else {2 * (2048 + 2049)})
