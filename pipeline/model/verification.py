"""A small reference that travels in a bundle, by which any host can measure the shipped file.

It holds windows as token ids with the logits of the FP32 graph and of the shipped file on the host
that made the bundle. No text is in it, but the ids of a text can be turned back into the text:
`compress.verification: synthetic` leaves those of validation records out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.batch import window_inputs
from pipeline.engines.host import this_host
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import head_slices
from pipeline.model.facts import measure_facts
from pipeline.model.gate_checks import (
    agreement,
    at_least,
    at_most,
    finite_share,
    macro_f1_drop,
    window_neighbour_effect,
)
from pipeline.model.gate_inputs import ODD_TEXTS, odd_windows, random_windows
from pipeline.model.labelled import target_matrix
from pipeline.model.outputs import Outputs
from pipeline.model.text_features import sampled
from pipeline.window import Window
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE, VERIFICATION_FILE
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of_file
from schemas.verification import HostVerification

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example, Target
    from schemas.bundle import BundleSpec, GateResult
    from schemas.task import TaskConfig, WindowPooling

Kind = Literal["text", "odd", "random", "padded"]
_TEXTS = 64
_PADDING = (1, 5, 17)  # tokens behind every third random window
_LABELS = b"label_digests"
_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("text", pa.string()),  # of the odd ones, which are ours
        ("input_ids", pa.list_(pa.int32())),
        ("type_ids", pa.list_(pa.int8())),
        ("padding", pa.int32()),
        ("targets", pa.string()),
        ("fp32", pa.list_(pa.float32())),
        ("shipped", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True)
class Reference:
    """One window, so many tokens of padding behind it, and what is known of it."""

    kind: Kind
    window: Window
    padding: int = 0
    text: str | None = None
    targets: dict[str, Target] | None = None


def write_verification(
    path: Path,
    task: TaskConfig,
    valid: Sequence[Example],
    *,
    fp32: OnnxEncoder,
    shipped: OnnxEncoder,
    tokenizer: BackboneTokenizer,
) -> str:
    """Writes the reference of a bundle that is being made; answers the file's digest."""
    rows = [*_text_rows(task, valid), *_own_rows(task, tokenizer)]
    pad_id = tokenizer.pad_id
    columns = [
        {
            "kind": row.kind,
            "text": row.text,
            "input_ids": row.window.input_ids,
            "type_ids": row.window.type_ids,
            "padding": row.padding,
            "targets": None if row.targets is None else json.dumps(row.targets, sort_keys=True),
            "fp32": _logits(fp32, row, pad_id=pad_id),
            "shipped": _logits(shipped, row, pad_id=pad_id),
        }
        for row in rows
    ]
    labels = {name: labels.digest for name, labels in task.label_sets.items()}
    schema = _SCHEMA.with_metadata({_LABELS: json.dumps(labels)})
    pq.write_table(pa.Table.from_pylist(columns, schema=schema), path, compression="zstd")
    return digest_of_file(path)


def _text_rows(task: TaskConfig, valid: Sequence[Example]) -> Iterator[Reference]:
    if task.compress.verification == "synthetic":
        return
    for example in sampled(valid, limit=_TEXTS, seed=task.train.seed):
        yield Reference("text", example.windows[0], targets=dict(example.targets))


def _own_rows(task: TaskConfig, tokenizer: BackboneTokenizer) -> Iterator[Reference]:
    for text, window in zip(ODD_TEXTS, odd_windows(ODD_TEXTS, tokenizer, task), strict=True):
        yield Reference("odd", window, text=text)
    drawn = random_windows(tokenizer, task, seed=task.train.seed)
    for window in drawn:
        yield Reference("random", window)
    for place, padding in enumerate(_PADDING):
        window = drawn[3 * place % len(drawn)]
        room = task.window.max_tokens - window.n_tokens
        yield Reference("padded", window, padding=min(padding, room))


def _logits(encoder: OnnxEncoder, row: Reference, *, pad_id: int) -> npt.NDArray[np.float32]:
    """Logits `(L,)` of one window, in a call of its own."""
    inputs = window_inputs([row.window], pad_id=pad_id)
    for name, fill in (("input_ids", pad_id), ("attention_mask", 0), ("token_type_ids", 0)):
        inputs[name] = np.pad(inputs[name], ((0, 0), (0, row.padding)), constant_values=fill)
    return np.asarray(encoder.run(inputs)[0])


class Verification:
    """The reference of a bundle, read on the host that is to be measured.

    Raises:
        ArtifactError: the bundle has none, it is not readable, or it is of other labels.
    """

    def __init__(self, folder: Path, spec: BundleSpec) -> None:
        if spec.verification is None:
            raise ArtifactError(
                f"bundle {folder} has no {VERIFICATION_FILE}, it was made before there was one; "
                f"make it again with `nightmill bundle`, or set score.unverified=allow"
            )
        self._folder, self._spec = folder, spec
        table = _read(folder / VERIFICATION_FILE)
        labels = json.loads((table.schema.metadata or {}).get(_LABELS, b"{}"))
        if labels != spec.label_digests:
            raise ArtifactError(
                f"bundle {folder}: {VERIFICATION_FILE} is of other labels, or of another order of "
                f"labels, than bundle.json; fetch the bundle again, or make it again"
            )
        self._table = table.to_pylist()
        self._rows = [_reference(row) for row in self._table]

    def measure(self) -> HostVerification:
        """The gates and facts of the shipped file on this host.

        An answer may differ where the bundle's own gates allow it to, or where it differed on the
        host that made the bundle.

        Raises:
            ArtifactError: the model or the tokenizer cannot be loaded.
        """
        tokenizer = BackboneTokenizer(self._folder / TOKENIZER_FILE)
        encoder = OnnxEncoder(self._folder / MODEL_FILE)
        windows = [row.window for row in self._rows]
        here = self._outputs([_logits(encoder, r, pad_id=tokenizer.pad_id) for r in self._rows])
        made = self._outputs([row["shipped"] for row in self._table])
        variant, config = self._spec.variant, self._spec.task.compress
        change = _largest_change(here, made)
        facts = measure_facts({variant: self._folder / MODEL_FILE}, windows)[variant]
        gates = [
            at_least(variant, "tokenizer_agreement", self._same_tokens(tokenizer), 1.0),
            at_least(variant, "finite_outputs", finite_share(here.logits), 1.0),
            at_most(variant, "neighbour_effect", window_neighbour_effect(encoder, windows), 0.0),
        ]
        for head in head_slices(self._spec.task.heads):
            alike = agreement(made, here, head)
            name = f"host_agreement.{head.name}"
            gates.append(at_least(variant, name, alike, config.min_label_agreement))
            gates += self._text_gates(made, here, head)
        if variant == "fp32":
            gates.append(at_most(variant, "logit_change", change, config.max_logit_difference_fp32))
        if config.max_file_mb is not None:
            gates.append(at_most(variant, "file_mb", facts.megabytes, config.max_file_mb))
        return HostVerification(
            bundle=self._spec.digest,
            measured_on=this_host(),
            gates=tuple(gates),
            facts=facts,
            largest_change=change,
            windows=len(windows),
            texts=len(self._texts()),
        )

    def _outputs(self, logits: Sequence[Any]) -> Outputs:
        pooling: WindowPooling = self._spec.task.train.window_pooling
        return Outputs(
            tuple(np.asarray(each, dtype=np.float64)[None] for each in logits),
            tuple(np.array([row.window.n_tokens]) for row in self._rows),
            pooling,
        )

    def _texts(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero([row.kind == "text" for row in self._rows])

    def _same_tokens(self, tokenizer: BackboneTokenizer) -> float:
        odd = [row for row in self._rows if row.text is not None]
        again = odd_windows([row.text or "" for row in odd], tokenizer, self._spec.task)
        same = [
            now.input_ids == row.window.input_ids and now.type_ids == row.window.type_ids
            for now, row in zip(again, odd, strict=True)
        ]
        return float(np.mean(same))

    def _text_gates(self, made: Outputs, here: Outputs, head: HeadSlice) -> list[GateResult]:
        """Answers and macro-F1 on validation texts; none where their ids do not travel."""
        places = self._texts()
        if not len(places):
            return []
        config, variant = self._spec.task.compress, self._spec.variant
        fp32 = self._outputs([row["fp32"] for row in self._table]).rows(places)
        made, here = made.rows(places), here.rows(places)
        targets = [(self._rows[place].targets or {}).get(head.name) for place in places]
        truth = target_matrix(targets, head.config)
        least = min(config.min_label_agreement, agreement(fp32, made, head))
        most = max(config.max_metric_drop, macro_f1_drop(fp32, made, truth, head))
        alike, drop = agreement(fp32, here, head), macro_f1_drop(fp32, here, truth, head)
        return [
            at_least(variant, f"label_agreement.{head.name}", alike, least),
            at_most(variant, f"certain_macro_f1_drop.{head.name}", drop, most),
        ]


def _largest_change(a: Outputs, b: Outputs) -> float:
    """Of any logit; NaN where one is."""
    pairs = zip(a.logits, b.logits, strict=True)
    return float(np.max([np.abs(mine - theirs).max() for mine, theirs in pairs]))


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read: {error}; fetch the bundle again") from error
    if table.schema.names != _SCHEMA.names or not table.num_rows:
        raise ArtifactError(f"{path} has no rows or other columns than {_SCHEMA.names}")
    return table


def _reference(row: dict[str, Any]) -> Reference:
    targets = None if row["targets"] is None else json.loads(row["targets"])
    if targets is not None:
        targets = {n: tuple(t) if isinstance(t, list) else t for n, t in targets.items()}
    window = Window(tuple(row["input_ids"]), tuple(row["type_ids"]), 0, 0)
    return Reference(row["kind"], window, padding=row["padding"], text=row["text"], targets=targets)
