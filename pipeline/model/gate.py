"""Conditions that a variant must pass, measured on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pipeline.batch import window_inputs
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import flags_of, predicted_labels
from pipeline.model.batches import takes_segments
from pipeline.model.labelled import Example, known_rows, label_matrix
from pipeline.model.metrics import certain_drop
from pipeline.model.outputs import Outputs, run_encoder
from pipeline.window import Window
from schemas.bundle import GateResult
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from schemas.task import CompressConfig, Variant

_PARITY_LENGTHS = (1, 2, 3, 7, 16, 33, 64, 128, 256)
_INVARIANCE_WINDOWS = 64
PARITY = "parity"


class TorchEncoder:
    """The fine-tuned model as an `Encoder`, one window a call: what variants are compared with."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model.eval()
        self._names = ["input_ids", "attention_mask"]
        if takes_segments(model):
            self._names.append("token_type_ids")

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(W, L)`."""
        return np.concatenate([self.run(window_inputs([window])) for window in windows])

    @torch.no_grad()
    def run(self, inputs: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Logits `(B, L)` of a padded batch."""
        tensors = {name: torch.from_numpy(inputs[name]) for name in self._names}
        return np.asarray(self._model(**tensors).numpy())


def parity_batches(
    windows: Sequence[Window], *, pad_id: int
) -> list[dict[str, npt.NDArray[np.int64]]]:
    """Batches of 1, 2 and 3 rows over many lengths and pad patterns, an all-padding row included.

    No row is longer than the longest window: the encoder may have no more positions than that.
    """
    longest = max(window.n_tokens for window in windows)
    ids = [token for window in windows for token in window.input_ids]
    types = [token for window in windows for token in window.type_ids]
    cut = [
        Window(tuple(ids[:length]), tuple(types[:length]), 0, 0)
        for length in sorted({*_PARITY_LENGTHS, longest})
        if length <= longest
    ]
    batches = [window_inputs([window], pad_id=pad_id) for window in cut]
    batches += [
        window_inputs([a, b], pad_id=pad_id) for a, b in zip(cut, reversed(cut), strict=True)
    ]
    batches += [window_inputs([cut[0], window, cut[-1]], pad_id=pad_id) for window in cut]
    empty = window_inputs([cut[-1], cut[0]], pad_id=pad_id)
    empty["attention_mask"][1] = 0
    return [*batches, empty]


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
    return _at_most("fp32", PARITY, float(np.max(differences)), config.max_logit_difference_fp32)


def variant_gates(
    variant: Variant,
    path: Path,
    *,
    texts: Sequence[Example],
    n_valid: int,
    reference: Outputs,
    heads: tuple[HeadSlice, ...],
    config: CompressConfig,
) -> list[GateResult]:
    """All gates of one variant against the reference's outputs on the same `texts`.

    The first `n_valid` texts are validation records: on them alone quality is compared.
    """
    encoder = OnnxEncoder(path)
    outputs = run_encoder(encoder, texts, pooling=reference.pooling)
    finite = float(np.mean([np.isfinite(logits).all() for logits in outputs.logits]))
    gates = [
        _at_least(variant, "finite_outputs", finite, 1.0),
        _at_most(variant, "neighbour_effect", neighbour_effect(encoder, texts), 0.0),
    ]
    for head in heads:
        agreement = _agreement(reference, outputs, head)
        drop = _drop(reference.first(n_valid), outputs.first(n_valid), texts[:n_valid], head)
        gates += [
            _at_least(
                variant, f"label_agreement.{head.name}", agreement, config.min_label_agreement
            ),
            _at_most(variant, f"certain_macro_f1_drop.{head.name}", drop, config.max_metric_drop),
        ]
    return gates


def neighbour_effect(encoder: OnnxEncoder, examples: Sequence[Example]) -> float:
    """Largest change of a window's logits when its neighbours in the call and the order change."""
    windows = [example.windows[0] for example in examples[:_INVARIANCE_WINDOWS]]
    together = encoder.logits(windows)
    backwards = encoder.logits(windows[::-1])[::-1]
    alone = np.concatenate([encoder.logits([window]) for window in windows])
    return float(np.max([np.abs(together - backwards).max(), np.abs(together - alone).max()]))


def choose_variant(prefer: Sequence[Variant], gates: Sequence[GateResult]) -> Variant:
    """The first preferred variant all of whose gates passed.

    Raises:
        ArtifactError: none did; the message has each failed gate with its number.
    """
    for variant in prefer:
        # Every variant is made from the FP32 graph: if that is wrong, so are they.
        own = [gate for gate in gates if gate.variant == variant or gate.gate == PARITY]
        if own and all(gate.passed for gate in own):
            return variant
    failed = "; ".join(str(gate) for gate in gates if not gate.passed)
    raise ArtifactError(f"no variant of {', '.join(prefer)} passes its gates: {failed}")


def _agreement(reference: Outputs, candidate: Outputs, head: HeadSlice) -> float:
    mine = predicted_labels(candidate.scores(head), head)
    theirs = predicted_labels(reference.scores(head), head)
    return float((mine == theirs).mean())


def _drop(
    reference: Outputs, candidate: Outputs, examples: Sequence[Example], head: HeadSlice
) -> float:
    target = label_matrix(list(examples), head.name, head.config)
    known = known_rows(target)
    answers = [
        target[known].astype(np.int64),
        predicted_labels(reference.scores(head), head)[known].astype(np.int64),
        predicted_labels(candidate.scores(head), head)[known].astype(np.int64),
    ]
    is_aspect = head.config.kind == "aspect"
    if is_aspect:
        answers = [flags_of(each, head).astype(np.int64) for each in answers]
    return certain_drop(*answers, only_present=is_aspect)


def _at_most(variant: Variant, gate: str, value: float, threshold: float) -> GateResult:
    # NaN compares false with everything, so a NaN never passes.
    return GateResult(
        variant=variant, gate=gate, value=value, rule="<=", threshold=threshold,
        passed=bool(value <= threshold),
    )  # fmt: skip


def _at_least(variant: Variant, gate: str, value: float, threshold: float) -> GateResult:
    return GateResult(
        variant=variant, gate=gate, value=value, rule=">=", threshold=threshold,
        passed=bool(value >= threshold),
    )  # fmt: skip
