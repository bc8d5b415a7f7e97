"""A new model against the champion, on the same records: what of the difference is not chance."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.stats import binomtest

from pipeline.bundle import load_spec
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import windows_of
from pipeline.heads import head_slices
from pipeline.model.head_quality import known_answers
from pipeline.model.labelled import label_matrix
from pipeline.model.outputs import run_encoder
from pipeline.model.resampling import Patterns, interval
from pipeline.prompt import prompted
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE, BundleSpec
from schemas.manifest import Document
from schemas.paired import PairedResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.bundling import Bundled
    from pipeline.model.labelled import Example

Integers = npt.NDArray[np.int64]

log = logging.getLogger(__name__)


class ChampionComparison(Document):
    """The champion's figures and gains by head; `notes` say what was not compared and why."""

    version: str | None = None
    heads: dict[str, PairedResult] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


def compare_with_champion(bundled: Bundled, folder: Path, *, version: str) -> ChampionComparison:
    """Both models on the records that the new one was measured on, by head.

    The champion reads the same texts, through its own tokenizer and windows. Heads that it has
    not, or with other labels, are left out with a note; where it cleans texts in another way
    nothing is compared, since these records are not what it would read.
    """
    theirs, mine = load_spec(folder), bundled.spec
    if theirs.digest == mine.digest:
        return ChampionComparison(version=version, notes=("This model is the champion.",))
    if theirs.cleaner_version != mine.cleaner_version or (
        theirs.task.data.text_columns != mine.task.data.text_columns
    ):
        note = "It reads other columns or cleans texts in another way, so it was not compared."
        return ChampionComparison(version=version, notes=(note,))
    shared = [name for name in mine.label_digests if _is_same_head(name, mine, theirs)]
    notes = [f"Head {name!r} differs." for name in mine.label_digests if name not in shared]
    notes += _split_note(mine, theirs)
    heads = _compare(bundled, theirs, folder, shared) if shared else {}
    return ChampionComparison(version=version, heads=heads, notes=tuple(notes))


def paired_result(
    truth: Integers, new: Integers, champion: Integers, head: HeadSlice, *, seed: int
) -> PairedResult:
    """From truth and both answers in the head's form; both models see each resample."""
    patterns = Patterns.of(truth, new, champion, head=head)
    right, theirs = _is_right(truth, new), _is_right(truth, champion)
    only_new, only_champion = int((right & ~theirs).sum()), int((theirs & ~right).sum())
    apart = only_new + only_champion
    accuracy, macro = partial(_gain, patterns.accuracy), partial(_gain, patterns.f1)
    return PairedResult(
        rows=len(truth),
        accuracy=patterns.accuracy(patterns.counts, 2),
        accuracy_gain=accuracy(patterns.counts),
        accuracy_gain_interval=interval(patterns, accuracy, seed=seed),
        macro_f1=patterns.f1(patterns.counts, 2),
        macro_f1_gain=macro(patterns.counts),
        macro_f1_gain_interval=interval(patterns, macro, seed=seed),
        only_new=only_new,
        only_champion=only_champion,
        p_value=float(binomtest(only_new, apart).pvalue) if apart else 1.0,
    )


def _gain(score: Any, weights: npt.NDArray[np.float64]) -> float:
    return float(score(weights, 1) - score(weights, 2))


def _compare(
    bundled: Bundled, theirs: BundleSpec, folder: Path, shared: Sequence[str]
) -> dict[str, PairedResult]:
    test = bundled.test
    if _reading(theirs) != _reading(bundled.spec):
        test = _read_anew(test, folder / TOKENIZER_FILE, theirs)
    pooling = theirs.task.train.window_pooling
    outputs = run_encoder(OnnxEncoder(folder / MODEL_FILE), test, pooling=pooling)
    slices = {head.name: head for head in head_slices(theirs.task.heads, theirs.temperatures)}
    results = {}
    for head in head_slices(bundled.spec.task.heads, bundled.spec.temperatures):
        if head.name not in shared:
            continue
        target = label_matrix(test, head.name, head.config)
        truth, new, _ = known_answers(bundled.test_outputs.scores(head), target, head)
        their_head = slices[head.name]
        _, champion, _ = known_answers(outputs.scores(their_head), target, their_head)
        if len(truth):
            results[head.name] = paired_result(
                truth, new, champion, head, seed=bundled.spec.task.train.seed
            )
    return results


def _reading(spec: BundleSpec) -> tuple[Any, ...]:
    """What decides which windows a model sees of a text."""
    files, task = spec.files, spec.task
    return files[TOKENIZER_FILE], task.window, task.train.window_pooling, task.prompt


def _read_anew(examples: Sequence[Example], tokenizer: Path, spec: BundleSpec) -> list[Example]:
    """The same records as another model's tokenizer and windows see them."""
    reader = prompted(BackboneTokenizer(tokenizer), spec.task.prompt)
    return [
        replace(example, windows=windows_of(example.texts, reader, spec.task.window).windows)
        for example in examples
    ]


def _is_same_head(name: str, mine: BundleSpec, theirs: BundleSpec) -> bool:
    ours = mine.task.heads[name]
    their = theirs.task.heads.get(name)
    if their is None or their.kind != ours.kind:
        return False
    return theirs.label_digests[name] == mine.label_digests[name]


def _split_note(mine: BundleSpec, theirs: BundleSpec) -> list[str]:
    """A champion that was split in another way has learnt from some of these very records."""
    if mine.task.data.test is not None and mine.task.data.test == theirs.task.data.test:
        return []
    keys = ("seed", "valid_fraction", "test_fraction")
    if all(getattr(mine.task.train, key) == getattr(theirs.task.train, key) for key in keys):
        return []
    return [
        "The champion's records were split in another way: it has learnt from some of these, which "
        "flatters it."
    ]


def _is_right(truth: Integers, predicted: Integers) -> npt.NDArray[np.bool_]:
    equal = truth == predicted
    return np.asarray(equal if equal.ndim == 1 else equal.all(axis=1))
