"""Ranges of activations from texts, one window at a time, for static INT8."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnxruntime.quantization.calibrate import (
    CalibraterBase,
    CalibrationMethod,
    HistogramCollector,
    MinMaxCalibrater,
    TensorData,
    TensorsData,
)

from pipeline.batch import window_inputs
from pipeline.model.model_file import has_data_file
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from pipeline.window import Window
    from schemas.task import CalibrationMethod as Method

OPERATORS = ("MatMul", "Gemm", "Gather")
_PERCENTILE = 99.999  # ONNX Runtime's default
# Bins by method. The entropy of each way to cut them is tried, in time that grows with the square.
_BINS = {"percentile": 2048, "entropy": 512}
_QUANTIZED_BINS = 128  # as Migacz 2017, "8-bit inference with TensorRT", has it


def measure_ranges(
    model: Path, windows: Sequence[Window], input_names: Sequence[str], *, method: Method = "minmax"
) -> TensorsData:
    """Range of each activation that `OPERATORS` read or write, by name.

    Windows go through one at a time, without padding, so that nothing of it enters the ranges; of
    each only extremes or counts of a fixed number of bins are kept, however many there are. The
    extremes of all windows come first, and bound the bins of a second pass.

    Raises:
        ArtifactError: there are no windows.
    """
    if not windows:
        raise ArtifactError(
            "static INT8 needs calibration texts, got none; add labelled rows, or leave "
            "int8_static out of compress.prefer"
        )
    with TemporaryDirectory() as folder:
        extremes = _measure_extremes(model, windows, input_names, Path(folder) / "extremes.onnx")
        if method == "minmax":
            return extremes
        collector = _empty_histograms(extremes, method)
        outputs = _Outputs(model, Path(folder) / "outputs.onnx")
        for window in windows:
            _count(collector, outputs.of(_feed(window, input_names)))
    return _ranges_of(collector)


def _measure_extremes(
    model: Path, windows: Sequence[Window], input_names: Sequence[str], augmented: Path
) -> TensorsData:
    calibrater = MinMaxCalibrater(
        model, OPERATORS, str(augmented), use_external_data_format=has_data_file(model)
    )
    calibrater.augment_graph()
    calibrater.create_inference_session()
    for window in windows:
        calibrater.collect_data(_OneFeed(_feed(window, input_names)))
    return calibrater.compute_data()


class _Outputs:
    """All activations that count, as further outputs of the graph."""

    def __init__(self, model: Path, augmented: Path) -> None:
        calibrater = CalibraterBase(model, OPERATORS, str(augmented))
        names, infos = calibrater.select_tensors_to_calibrate(calibrater.model)
        known = {output.name for output in calibrater.model.graph.output}
        calibrater.model.graph.output.extend(infos[name] for name in sorted(names - known))
        self._names = sorted(names)
        onnx.save(calibrater.model, str(augmented), save_as_external_data=has_data_file(model))
        calibrater.create_inference_session()
        self._session = calibrater.infer_session

    def of(self, feed: dict[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
        """Activations of one window by name."""
        return dict(zip(self._names, self._session.run(self._names, feed), strict=True))


def _empty_histograms(extremes: TensorsData, method: Method) -> HistogramCollector:
    """Counts of nothing yet, as wide as the extremes: later ones would have to grow without end."""
    bins = _BINS[method]
    collector = HistogramCollector(
        method, symmetric=False, num_bins=bins, num_quantized_bins=_QUANTIZED_BINS,
        percentile=_PERCENTILE, scenario="same",
    )  # fmt: skip
    for name, data in extremes.items():
        low, high = (np.float32(value) for value in np.ravel(data.range_value))
        # Never a width of zero, which an activation without values other than zero would have.
        bound = np.float32(max(abs(low), abs(high), np.finfo(np.float32).tiny))
        edges = np.linspace(-bound, bound, bins + 1, dtype=np.float32)
        collector.histogram_dict[name] = (np.zeros(bins, np.int64), edges, low, high, bound)
    return collector


def _count(collector: HistogramCollector, values: dict[str, npt.NDArray[np.float32]]) -> None:
    for name, held in collector.histogram_dict.items():
        counts, edges, low, high, bound = held
        found, _ = np.histogram(values[name], len(counts), range=(-bound, bound))
        collector.histogram_dict[name] = (counts + found, edges, low, high, bound)


def _ranges_of(collector: HistogramCollector) -> TensorsData:
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of its progress by print
        found = collector.compute_collection_result()
    ranges = {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high))
        for name, (low, high, *_) in found.items()
    }
    # By whichever method they were found, to the quantizer they are extremes.
    return TensorsData(CalibrationMethod.MinMax, ranges)


def _feed(window: Window, input_names: Sequence[str]) -> dict[str, Any]:
    inputs = window_inputs([window])
    return {name: inputs[name] for name in input_names}


class _OneFeed:
    """A `CalibrationDataReader` of one window: a calibrater keeps all that it reads of one."""

    def __init__(self, feed: dict[str, Any]) -> None:
        self._feeds: Iterator[dict[str, Any]] = iter([feed])

    def get_next(self) -> dict[str, Any] | None:
        """The window's inputs, None after them."""
        return next(self._feeds, None)
