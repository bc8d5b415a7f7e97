"""Variants of one exported model: FP32 always, and what `compress.prefer` asks for beside it."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from pipeline.model.calibrate import measure_ranges
from pipeline.model.export import describe_export, export_onnx
from pipeline.model.fused_operators import check_fusions, operators, optimised_operators
from pipeline.model.half import convert_to_half
from pipeline.model.neighbours import LIKENESS
from pipeline.model.parts import Parts, nodes_of, quantizable_parts
from pipeline.model.quantize import (
    prepare_for_quantization,
    quantize_by_ranges,
    quantize_to_blocks,
    quantize_to_dynamic,
)
from schemas.bundle import MODEL_FILE
from schemas.task import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onnxruntime.quantization.calibrate import TensorsData

    from pipeline.model.network import Classifier
    from pipeline.window import Window
    from schemas.bundle import Export
    from schemas.task import CompressConfig

log = logging.getLogger(__name__)

FLOATS: tuple[Variant, ...] = ("fp16", "fp32")
QUANTIZED: tuple[Variant, ...] = tuple(name for name in get_args(Variant) if name not in FLOATS)


class VariantMaker:
    """Exports a model once, and makes variants of the graph as they are asked for.

    `calibration` are windows of the task's own texts. Each variant has a folder below `work`, since
    weights that are too many for one file have the same name beside each of them.

    Raises:
        ArtifactError: the export is not sound, or a known encoder's operators were not fused.
    """

    def __init__(
        self,
        model: Classifier,
        config: CompressConfig,
        *,
        calibration: Sequence[Window],
        work: Path,
    ) -> None:
        self.config = config
        self._calibration = calibration
        self._work = work
        self.fp32 = self._place("fp32")
        self.kept: dict[Variant, tuple[str, ...]] = {}
        self._input_names = export_onnx(model, self.fp32)
        self._encoder = model.encoder.config
        check_fusions(optimised_operators(self.fp32), self._encoder, target="cpu")

    def make_all(self) -> dict[Variant, Path]:
        """FP32 and the preferred variants, each without the parts that the task names.

        Raises:
            ArtifactError: there is nothing to calibrate on, or an operator was not fused.
            ConfigError: `compress.keep_fp32` names a part that the encoder has not.
        """
        named = self.config.keep_fp32
        keep = named if isinstance(named, tuple) else ()
        files: dict[Variant, Path] = {"fp32": self.fp32}
        for variant in self.config.prefer:
            if variant == "fp16":
                files[variant] = convert_to_half(self.fp32, self._place(variant))
                check_fusions(operators(files[variant]), self._encoder, target="gpu")
            elif variant in QUANTIZED:
                files[variant] = self.make(variant, keep=keep, target=self._place(variant))
                self.kept[variant] = keep
        return files

    def make(self, variant: Variant, *, keep: Sequence[str], target: Path) -> Path:
        """A quantized variant at `target`, in which the parts called `keep` stay FP32.

        Raises:
            ArtifactError, ConfigError: see `make_all`.
        """
        exclude = [*nodes_of(self.parts, keep), *self._never]
        weights = self.config.int8_weights
        if variant == "int8_static":
            return quantize_by_ranges(
                self._prepared, target, ranges=self._ranges, weights=weights, exclude=exclude
            )
        if variant == "int8_dynamic":
            return quantize_to_dynamic(self._prepared, target, weights=weights, exclude=exclude)
        return quantize_to_blocks(
            self._prepared, target, bits=8 if variant == "int8_blockwise" else 4,
            block_size=self.config.block_size, exclude=exclude,
        )  # fmt: skip

    def trial(self, variant: Variant, keep: Sequence[str]) -> Path:
        """A variant in which the parts called `keep` are FP32; the next trial overwrites it."""
        return self.make(variant, keep=keep, target=self._place("trial"))

    def describe(self, variant: Variant, path: Path) -> Export:
        """What `bundle.json` tells of how the variant at `path` was made."""
        found = describe_export(path)
        return found.model_copy(
            update={
                "calibration": self.config.calibration if variant == "int8_static" else None,
                "int8_weights": (
                    self.config.int8_weights if variant in ("int8_static", "int8_dynamic") else None
                ),
                "kept_fp32": self.kept.get(variant, ()),
            }
        )

    @cached_property
    def parts(self) -> Parts:
        """Quantizable operators by part, but those that are never quantized."""
        found = quantizable_parts(self._prepared)
        return {name: nodes for name, nodes in found.items() if name != LIKENESS}

    @cached_property
    def _never(self) -> tuple[str, ...]:
        """Cosines differ by less from text to text than 8 bits tell apart, and cost little."""
        return quantizable_parts(self._prepared).get(LIKENESS, ())

    @cached_property
    def _prepared(self) -> Path:
        return prepare_for_quantization(self.fp32, self._place("prepared"))

    @cached_property
    def _ranges(self) -> TensorsData:
        return measure_ranges(
            self._prepared, self._calibration, self._input_names, method=self.config.calibration
        )

    def _place(self, name: str) -> Path:
        folder = self._work / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / MODEL_FILE
