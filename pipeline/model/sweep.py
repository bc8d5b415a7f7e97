"""Which parts suffer from being quantized; a variant that fails is saved by keeping them FP32."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import predicted_labels
from pipeline.model.facts import COST_GATES
from pipeline.model.labelled import known_rows, label_matrix
from pipeline.model.metrics import head_macro_f1
from pipeline.model.outputs import Outputs, run_encoder
from pipeline.model.variants import QUANTIZED
from schemas.sweep import Sweep, SweepRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.variants import VariantMaker
    from schemas.bundle import GateResult
    from schemas.task import Variant, WindowPooling

    Measure = Callable[[Variant, Path], list[GateResult]]

log = logging.getLogger(__name__)

_LEAST_GAIN = 1.1  # over FP32: less is within the noise of a shared host, and not worth a drop
_SPEED_WINDOWS = 48
_ROUNDS = 3
_TINY = 1e-12  # a probability in FP32's place of zero


@dataclass
class Sample:
    """A short sample of texts, each by its first window, and what FP32 says of them."""

    texts: list[Example]
    heads: tuple[HeadSlice, ...]
    reference: Outputs

    @classmethod
    def of(
        cls,
        fp32: Path,
        texts: Sequence[Example],
        heads: tuple[HeadSlice, ...],
        *,
        pooling: WindowPooling,
    ) -> Sample:
        """A sample of `texts`, through the FP32 graph at `fp32`."""
        short = [replace(text, windows=text.windows[:1]) for text in texts]
        return cls(short, heads, run_encoder(OnnxEncoder(fp32), short, pooling=pooling))

    def measure(self, name: str, products: int, path: Path) -> SweepRow:
        """How far the graph at `path` is from FP32."""
        pooling = self.reference.pooling
        outputs = run_encoder(OnnxEncoder(path), self.texts, pooling=pooling)
        by_head = [self._by_head(outputs, head) for head in self.heads]
        kl, agreement, drop = zip(*by_head, strict=True)
        return SweepRow(
            name=name, products=products, kl=sum(kl), agreement=min(agreement),
            macro_f1_drop=max(drop),
        )  # fmt: skip

    def _by_head(self, outputs: Outputs, head: HeadSlice) -> tuple[float, float, float]:
        wanted, got = self.reference.scores(head), outputs.scores(head)
        before, after = predicted_labels(wanted, head), predicted_labels(got, head)
        target = label_matrix(self.texts, head.name, head.config)
        known = known_rows(target)
        drop = 0.0
        if known.any():
            truth = target[known].astype(np.int64)
            drop = head_macro_f1(truth, before[known].astype(np.int64), head)
            drop -= head_macro_f1(truth, after[known].astype(np.int64), head)
        return divergence(wanted, got, head), float((before == after).mean()), drop


def divergence(
    wanted: npt.NDArray[np.float64], got: npt.NDArray[np.float64], head: HeadSlice
) -> float:
    """Mean KL(wanted || got) in nats of probabilities `(N, L)`, for `multi` over yes and no."""
    kl = _relative_entropy(wanted, got)
    if head.config.kind == "multi":
        kl += _relative_entropy(1.0 - wanted, 1.0 - got)
    return float(kl.sum(axis=1).mean())


def _relative_entropy(
    wanted: npt.NDArray[np.float64], got: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    high, low = np.maximum(wanted, _TINY), np.maximum(got, _TINY)
    return np.asarray(high * np.log(high / low))


def sweep_parts(maker: VariantMaker, variant: Variant, sample: Sample) -> Sweep:
    """Each part of a quantized variant by itself, the most harmful first.

    A model of n layers is quantized and run over the sample 2 n + 2 times, in one thread.
    """
    rows = []
    for name, nodes in maker.parts.items():
        path = maker.trial(variant, [other for other in maker.parts if other != name])
        rows.append(sample.measure(name, len(nodes), path))
        log.info("sweep %s %s", variant, rows[-1])
    # A divergence that is no number is the worst there is.
    rows.sort(key=lambda row: (-np.nan_to_num(row.kl, nan=np.inf, posinf=np.inf), row.name))
    return Sweep(variant=variant, texts=len(sample.texts), rows=tuple(rows))


@dataclass
class Rescue:
    """Gates after the worst parts of failing variants were left FP32, and the sweeps it took."""

    gates: list[GateResult]
    sweeps: list[Sweep] = field(default_factory=list)


def rescue(
    maker: VariantMaker,
    files: dict[Variant, Path],
    gates: Sequence[GateResult],
    *,
    measure: Measure,
    take_sample: Callable[[], Sample],
) -> Rescue:
    """Looks for the first preferred variant that passes, with parts of it FP32 where need be.

    Does so where `compress.keep_fp32` is `auto`; with `compress.sweep` the first quantized variant
    is swept even if it passes. A variant that is saved takes the failed one's place in `files`.
    One that fails by size or speed cannot be saved: the next one is looked at.
    """
    config, found = maker.config, Rescue(list(gates))
    if config.keep_fp32 != "auto" and not config.sweep:
        return found
    fp32 = [gate for gate in found.gates if gate.variant == "fp32"]
    if not all(gate.passed or gate in _costs(fp32) for gate in fp32):
        return found  # whatever is made of it is as wrong
    for variant in config.prefer:
        own = [gate for gate in found.gates if gate.variant == variant]
        passed = all(gate.passed for gate in own)
        may_be_saved = not passed and not _has_too_much(own)
        if variant in QUANTIZED and (may_be_saved or (config.sweep and not found.sweeps)):
            sample = take_sample()
            sweep = sweep_parts(maker, variant, sample)
            kept = maker.kept.get(variant, ())
            if may_be_saved and config.keep_fp32 == "auto":
                better = _keep_worst(maker, sweep, sample, files, measure)
                if better:
                    found.gates = [g for g in found.gates if g.variant != variant] + better
                    kept, passed = maker.kept[variant], True
            found.sweeps.append(sweep.with_kept(kept))
        if passed:
            break
    return found


def _keep_worst(
    maker: VariantMaker,
    sweep: Sweep,
    sample: Sample,
    files: dict[Variant, Path],
    measure: Measure,
) -> list[GateResult]:
    """Gates of the variant with the fewest parts FP32 that passes; empty where none is worth it."""
    order = tuple(row.name for row in sweep.rows)
    baseline = OnnxEncoder(files["fp32"])
    for n in range(1, len(order)):
        trial = maker.trial(sweep.variant, order[:n])
        gain = _speed_gain(OnnxEncoder(trial), baseline, sample)
        if gain < _LEAST_GAIN:
            log.warning(
                "%s with %s in FP32 is %.2f times as fast as FP32: no gain is left",
                sweep.variant, ", ".join(order[:n]), gain,
            )  # fmt: skip
            return []
        gates = measure(sweep.variant, trial)
        if all(gate.passed for gate in gates):
            log.info("%s passes with %s in FP32", sweep.variant, ", ".join(order[:n]))
            # It may stay where it is: with the first that passes the trials end.
            files[sweep.variant], maker.kept[sweep.variant] = trial, order[:n]
            return gates
        if _has_too_much(gates):
            log.warning(
                "%s with %s in FP32 fails %s: more parts in FP32 would only cost more",
                sweep.variant, ", ".join(order[:n]), "; ".join(map(str, _costs(gates))),
            )  # fmt: skip
            return []
    return []


def _has_too_much(gates: Sequence[GateResult]) -> bool:
    """Whether size or speed fails, which parts in FP32 make only worse."""
    return not all(gate.passed for gate in _costs(gates))


def _costs(gates: Sequence[GateResult]) -> list[GateResult]:
    return [gate for gate in gates if gate.gate in COST_GATES]


def _speed_gain(candidate: OnnxEncoder, baseline: OnnxEncoder, sample: Sample) -> float:
    """Times as fast as `baseline`; each by its best of a few rounds, taken by turns."""
    windows = [text.windows[0] for text in sample.texts[:_SPEED_WINDOWS]]
    best = {"candidate": np.inf, "baseline": np.inf}
    for _ in range(_ROUNDS):
        for name, encoder in (("candidate", candidate), ("baseline", baseline)):
            start = time.perf_counter()
            encoder.logits(windows)
            best[name] = min(best[name], time.perf_counter() - start)
    return float(best["baseline"] / best["candidate"])
