"""A text gets the same bytes alone, in any group and in any order, from a real INT8 model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.batch_plan import ONE_A_CALL, BatchTable
from pipeline.bundle import text_flow
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.heads import head_slices, record_scores
from pipeline.inference import Inferred, ModelInference
from pipeline.rows import RawRow
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.flow import TextFlow
    from pipeline.window import Window
    from schemas.task import TaskConfig, WindowPooling

WORDS = ("invoice", "late", "card", "the", "app", "broken", "again", "é", "x9")
TABLE = BatchTable(((16, 8), (32, 4)))


@pytest.fixture(scope="module")
def flow(tiny_bundle: Path, tiny_task: TaskConfig) -> TextFlow:
    return text_flow(tiny_task, BackboneTokenizer(tiny_bundle / TOKENIZER_FILE))


@pytest.fixture(scope="module")
def items(flow: TextFlow) -> list[Prepared]:
    """Thirty texts of one to four windows, many of the same length."""
    chooser = random.Random(11)
    bodies = [
        " ".join(chooser.choices(WORDS, k=chooser.choice((2, 3, 3, 5, 40)))) for _ in range(30)
    ]
    rows = [
        RawRow("f", n, {"ticket_id": f"t{n}", "subject": "price", "body": body}, b"")
        for n, body in enumerate(bodies)
    ]
    return [item for item in flow.prepare(rows) if isinstance(item, Prepared)]


@pytest.fixture(scope="module")
def int8(
    tiny_bundle: Path,
    flow: TextFlow,
    items: list[Prepared],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """The tiny model in both kinds of INT8."""
    from pipeline.model.quantize import (
        prepare_for_quantization,
        quantize_to_dynamic,
        quantize_to_static,
    )

    folder = tmp_path_factory.mktemp("int8")
    prepared = prepare_for_quantization(tiny_bundle / MODEL_FILE, folder / "prepared.onnx")
    windows = [flow.windows(item).windows[0] for item in items]
    names = OnnxEncoder(tiny_bundle / MODEL_FILE).input_names
    return {
        "int8_dynamic": quantize_to_dynamic(prepared, folder / "dynamic.onnx"),
        "int8_static": quantize_to_static(
            prepared, folder / "static.onnx", calibration=windows, input_names=names
        ),
    }


def bytes_of(found: Inferred) -> list[bytes]:
    return [found.answers[name].scores.tobytes() for name in sorted(found.answers)]


def inference(
    path: Path, flow: TextFlow, task: TaskConfig, batches: BatchTable, **options: int
) -> ModelInference:
    encoder = OnnxEncoder(path, batches=batches)
    return ModelInference(flow, encoder, head_slices(task.heads), **options)


@pytest.mark.parametrize(
    ("variant", "batches"),
    [("int8_dynamic", ONE_A_CALL), ("int8_static", ONE_A_CALL), ("int8_static", TABLE)],
)
def test_failure_25_a_row_has_the_same_bytes_alone_and_in_any_group(
    variant: str,
    batches: BatchTable,
    flow: TextFlow,
    tiny_task: TaskConfig,
    items: list[Prepared],
    int8: dict[str, Path],
) -> None:
    model = inference(int8[variant], flow, tiny_task, batches)
    alone = {item.text_hash: bytes_of(model.infer([item])[0]) for item in items}
    assert len(set(map(tuple, alone.values()))) > 20  # texts do get different scores

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.sampled_from(items), min_size=1, unique_by=lambda item: item.text_hash))
    def in_any_company(group: Sequence[Prepared]) -> None:
        for item, found in zip(group, model.infer(group), strict=True):
            assert bytes_of(found) == alone[item.text_hash]

    in_any_company()


def test_failure_25_two_plans_give_the_same_bytes(
    flow: TextFlow, tiny_task: TaskConfig, items: list[Prepared], int8: dict[str, Path]
) -> None:
    """A run may be begun on a host that batches and finished on one that does not."""
    one = inference(int8["int8_static"], flow, tiny_task, ONE_A_CALL).infer(items)
    many = inference(int8["int8_static"], flow, tiny_task, TABLE).infer(items)
    assert [bytes_of(found) for found in one] == [bytes_of(found) for found in many]


def test_small_groups_answer_as_one_large_one(
    flow: TextFlow, tiny_task: TaskConfig, items: list[Prepared], int8: dict[str, Path]
) -> None:
    path = int8["int8_static"]
    small = inference(path, flow, tiny_task, TABLE, tokens_at_once=64).infer(items)
    large = inference(path, flow, tiny_task, TABLE).infer(items)
    assert [bytes_of(found) for found in small] == [bytes_of(found) for found in large]
    assert sum(found.windows_made for found in small) > len(items)


def test_only_the_record_with_a_broken_window_has_no_answer(
    flow: TextFlow, tiny_task: TaskConfig, items: list[Prepared]
) -> None:
    """FAILURES row 30: NaN in one window of a record does not reach its neighbours."""
    long = next(n for n, item in enumerate(items) if len(flow.windows(item).windows) > 1)
    before = sum(len(flow.windows(item).windows) for item in items[:long])

    class OneNaN:
        def logits(self, windows: Sequence[Window]) -> np.ndarray:
            logits = np.ones((len(windows), 5), np.float32)
            logits[before + 1, 2] = np.nan
            return logits

    found = ModelInference(flow, OneNaN(), head_slices(tiny_task.heads)).infer(items)
    assert [n for n, each in enumerate(found) if not each.answers] == [long]
    assert found[long].decision == "review"
    assert found[long].windows_made == len(flow.windows(items[long]).windows)


class Weighing:
    """Logits of the windows' own tokens; the last column says how much a window counts."""

    def logits(self, windows: Sequence[Window]) -> np.ndarray:
        rows = [[*np.sin(np.arange(5) + sum(window.input_ids)), len(window.input_ids) % 3]
                for window in windows]  # fmt: skip
        return np.array(rows, np.float32)


@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_windows_are_pooled_as_the_model_was_trained_to(
    pooling: WindowPooling, flow: TextFlow, tiny_task: TaskConfig, items: list[Prepared]
) -> None:
    heads = head_slices(tiny_task.heads)
    found = ModelInference(flow, Weighing(), heads, pooling=pooling).infer(items)
    for item, inferred in zip(items, found, strict=True):
        windows = flow.windows(item).windows
        logits = Weighing().logits(windows).astype(np.float64)
        n_tokens = np.array([window.n_tokens for window in windows])
        for head in heads:
            expected = record_scores(logits, n_tokens, head, pooling=pooling)
            assert inferred.answers[head.name].scores.tobytes() == expected.tobytes()


def test_a_weight_that_is_no_number_is_no_answer(
    flow: TextFlow, tiny_task: TaskConfig, items: list[Prepared]
) -> None:
    class Broken(Weighing):
        def logits(self, windows: Sequence[Window]) -> np.ndarray:
            logits = super().logits(windows)
            logits[0, -1] = np.inf
            return logits

    inference = ModelInference(
        flow, Broken(), head_slices(tiny_task.heads), pooling="attention", tokens_at_once=1 << 20
    )
    assert [bool(each.answers) for each in inference.infer(items[:3])] == [False, True, True]
