"""Conditions that a variant must pass, measured on this host, and the choice that follows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from pipeline.batch import window_inputs
from pipeline.batch_plan import BatchTable, equal_length_calls
from pipeline.engines.host import usable_cpus
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.batches import takes_segments
from pipeline.model.gate_checks import (
    agreement,
    at_least,
    at_most,
    drop_by_language,
    ece_rise,
    finite_share,
    macro_f1_drop,
    neighbour_effect,
)
from pipeline.model.labelled import Example, label_matrix
from pipeline.model.metrics import MIN_SLICE_ROWS
from pipeline.model.outputs import Outputs, run_encoder
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.network import Classifier
    from pipeline.window import Window
    from schemas.bundle import GateResult
    from schemas.task import CompressConfig, Variant

PARITY = "parity"
# What to try where a gate of that name fails; the name of a head or language follows some names.
_ADVICE = {
    PARITY: "the exported graph computes something else: report it, it is a bug",
    "finite_outputs": "the variant overflows: leave fp16 out of compress.prefer, or train again "
    "with a lower learning rate where it is fp32",
    "neighbour_effect": "leave the variant out of compress.prefer",
    "label_agreement": "more compress.calibration_texts, compress.keep_fp32=auto, or a lower "
    "compress.min_label_agreement",
    "certain_macro_f1_drop": "compress.keep_fp32=auto, another variant in compress.prefer, or a "
    "higher compress.max_metric_drop (of a language: max_slice_metric_drop)",
    "certain_ece_rise": "another variant in compress.prefer, or a higher compress.max_ece_increase",
    "file_mb": "a smaller train.backbone, an INT8 variant in compress.prefer, or a higher "
    "compress.max_file_mb",
    "speedup": "another variant in compress.prefer, or a lower compress.min_speedup",
}
_WINDOWS_A_TURN = 32
# One window a call leaves most of PyTorch's time to what is around the products.
_TORCH_CALLS = BatchTable(((1 << 30, 16),))


@dataclass
class Watch:
    """Windows of `odd` texts, of which gates ask finite logits only, and what is remembered.

    `said` is what the file at each path says of the validation records.
    """

    odd: Sequence[Window] = ()
    said: dict[Path, Outputs] = field(default_factory=dict)


class TorchEncoder:
    """The fine-tuned model as an `Encoder`, never padded: what variants are compared with."""

    def __init__(self, model: Classifier) -> None:
        self._model = model.eval()
        self._names = ["input_ids", "attention_mask"]
        if takes_segments(model):
            self._names.append("token_type_ids")

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(W, L)`, of windows of equal length in one call."""
        lengths = [window.n_tokens for window in windows]
        calls = list(equal_length_calls(lengths, _TORCH_CALLS))
        outputs = [self.run(window_inputs([windows[i] for i in call])) for call in calls]
        order = [i for call in calls for i in call]
        return np.concatenate(outputs)[np.argsort(order)]

    @torch.no_grad()
    def run(self, inputs: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Logits `(B, L)` of a padded batch."""
        tensors = {name: torch.from_numpy(inputs[name]) for name in self._names}
        return np.asarray(self._model(**tensors).numpy())


class AllCores:
    """An encoder whose windows are dealt out to the host's cores, each in a call of its own.

    The logits are the same bytes: a session may be called by several threads at once.
    """

    def __init__(self, encoder: OnnxEncoder) -> None:
        self._encoder = encoder

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(W, L)`."""
        cores = usable_cpus()
        starts = range(0, len(windows), _WINDOWS_A_TURN)
        if cores == 1 or len(starts) < 2:
            return self._encoder.logits(windows)
        with ThreadPoolExecutor(cores) as pool:
            turns = (windows[start : start + _WINDOWS_A_TURN] for start in starts)
            return np.concatenate(list(pool.map(self._encoder.logits, turns)))


def parity_gate(
    reference: TorchEncoder,
    candidate: OnnxEncoder,
    batches: Sequence[dict[str, npt.NDArray[np.int64]]],
    *,
    config: CompressConfig,
) -> GateResult:
    """Largest logit difference between PyTorch and the exported FP32 graph."""
    differences = [np.abs(reference.run(batch) - candidate.run(batch)).max() for batch in batches]
    # NumPy's max, unlike Python's, answers NaN when any of them is NaN.
    return at_most("fp32", PARITY, float(np.max(differences)), config.max_logit_difference_fp32)


def variant_gates(
    variant: Variant,
    path: Path,
    *,
    texts: Sequence[Example],
    n_valid: int,
    reference: Outputs,
    heads: tuple[HeadSlice, ...],
    config: CompressConfig,
    watch: Watch | None = None,
) -> list[GateResult]:
    """All gates of one variant against the reference's outputs on the same `texts`.

    The first `n_valid` texts are validation records: on them alone quality is compared.
    """
    watch = watch or Watch()
    encoder = OnnxEncoder(path)
    outputs = run_encoder(AllCores(encoder), texts, pooling=reference.pooling)
    finite = finite_share([*outputs.logits, *(encoder.logits([window]) for window in watch.odd)])
    watch.said[path] = valid = outputs.first(n_valid)
    gates = [
        at_least(variant, "finite_outputs", finite, 1.0),
        at_most(variant, "neighbour_effect", neighbour_effect(encoder, texts), 0.0),
    ]
    for head in heads:
        alike = agreement(reference, outputs, head)
        gates.append(
            at_least(variant, f"label_agreement.{head.name}", alike, config.min_label_agreement)
        )
        gates += _quality_gates(
            variant, reference.first(n_valid), valid, texts[:n_valid], head, config=config
        )
    return gates


def _quality_gates(
    variant: Variant,
    reference: Outputs,
    candidate: Outputs,
    examples: Sequence[Example],
    head: HeadSlice,
    *,
    config: CompressConfig,
) -> list[GateResult]:
    """What is lost of a head's macro-F1, by language too, and of its calibration."""
    target = label_matrix(examples, head.name, head.config)
    drop = macro_f1_drop(reference, candidate, target, head)
    slices = drop_by_language(reference, candidate, examples, head, least_rows=MIN_SLICE_ROWS)
    rise = ece_rise(reference, candidate, target, head)
    name = f"certain_macro_f1_drop.{head.name}"
    return [
        at_most(variant, name, drop, config.max_metric_drop),
        *(
            at_most(variant, f"{name}.{lang}", value, config.max_slice_metric_drop)
            for lang, value in slices.items()
        ),
        at_most(variant, f"certain_ece_rise.{head.name}", rise, config.max_ece_increase),
    ]


def choose_variant(prefer: Sequence[Variant], gates: Sequence[GateResult]) -> Variant:
    """The first preferred variant all of whose gates passed.

    Raises:
        ArtifactError: none did; the message has each failed gate with its number, by how much it
            failed, and what to try.
    """
    measured = {gate.variant for gate in gates}
    for variant in prefer:
        if variant in measured and all(gate.passed for gate in _gates_of(variant, gates)):
            return variant
    failed = [gate for gate in gates if not gate.passed]
    kinds = dict.fromkeys(gate.gate.partition(".")[0] for gate in failed)
    advice = [f"{kind}: {_ADVICE[kind]}" for kind in kinds if kind in _ADVICE]
    raise ArtifactError(
        f"no variant of {', '.join(prefer)} passes its gates: {_told(failed)}"
        + (f"; to try: {'; '.join(advice)}" if advice else "")
    )


def reason_for(variant: Variant, prefer: Sequence[Variant], gates: Sequence[GateResult]) -> str:
    """Why `choose_variant` chose that one, in a sentence for people."""
    before = prefer[: list(prefer).index(variant)]
    if not before:
        return f"{variant} is the first choice of compress.prefer and passes all of its gates"
    failed = {name: [gate for gate in _gates_of(name, gates) if not gate.passed] for name in before}
    told = "; ".join(
        _told(found) if found else f"{name} was not made" for name, found in failed.items()
    )
    return (
        f"{variant} is the first of compress.prefer that passes all of its gates; before it {told}"
    )


def _gates_of(variant: Variant, gates: Sequence[GateResult]) -> list[GateResult]:
    """Every variant is made from the FP32 graph: if that is wrong, so are they."""
    return [gate for gate in gates if gate.variant == variant or gate.gate == PARITY]


def _told(failed: Sequence[GateResult]) -> str:
    return "; ".join(f"{gate} (by {abs(gate.value - gate.threshold):.3g})" for gate in failed)
