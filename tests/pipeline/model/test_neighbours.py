"""Nearness to training texts: computed by the graph, and only where it is of use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
import torch

from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import answers, head_slices
from pipeline.model.bundling import Source, make_bundle
from pipeline.model.checkpoint import new_classifier, save_checkpoint
from pipeline.model.export import export_onnx
from pipeline.model.gate import TorchEncoder
from pipeline.model.half import convert_to_half
from pipeline.model.labelled import OUTSIDE
from pipeline.model.neighbours import Likeness, add_likeness, pooled_vectors
from pipeline.model.variants import VariantMaker
from schemas.head import HeadConfig, KnnConfig, OutsideConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TaskConfig


@pytest.fixture
def task(tiny_task: TaskConfig) -> TaskConfig:
    knn = KnnConfig(texts=50, neighbours=3)
    outside = OutsideConfig(labels=("oos",), keep=0.9, knn=knn)
    queue = tiny_task.heads["queue"].model_copy(update={"outside": outside})
    compress = tiny_task.compress.model_copy(
        update={"prefer": ("int8_dynamic", "fp32"), "gate_texts": 40, "calibration_texts": 40,
                "min_label_agreement": 0.1, "max_metric_drop": 1.0, "max_slice_metric_drop": 1.0,
                "max_ece_increase": 1.0}
    )  # fmt: skip
    return tiny_task.model_copy(
        update={"heads": {**tiny_task.heads, "queue": queue}, "compress": compress}
    )


@pytest.fixture
def splits(toy_examples: list[Example], make_example: Callable[..., Example]) -> dict:
    """The toy set and, to validate and to test, texts outside of other lengths and words."""
    odd = [
        replace(
            make_example(f"o{n}", queue=None, topics=(1, 1), split=split, filler=14, seed=900 + n),
            targets={"queue": OUTSIDE, "topics": None},
        )
        for n, split in enumerate(["valid", "test"] * 12)
    ]
    found: dict[str, list[Example]] = {"train": [], "valid": [], "test": []}
    for example in [*toy_examples, *odd]:
        found[example.split].append(example)
    return found


@pytest.fixture
def blind(tiny_model: Classifier) -> Classifier:
    """A model whose logits are the same for every text, so that they tell nothing."""
    torch.nn.init.zeros_(tiny_model.heads.weight)
    return tiny_model


def test_the_column_is_the_cosine_to_the_one_of_that_rank_by_hand() -> None:
    kept = {"a": torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]), "b": torch.eye(2)[:1]}
    likeness = Likeness(kept, {"a": 2, "b": 5}, n_logits=2)
    assert likeness.columns == {"a": 2, "b": 3}
    logits = torch.tensor([[1.0, 2.0, 9.0], [3.0, 4.0, 8.0]])  # the last is a window's weight
    got = likeness(logits, torch.tensor([[3.0, 4.0], [0.0, -2.0]]))
    expected = [[1.0, 2.0, 0.6, 0.6, 9.0], [3.0, 4.0, 0.0, 0.0, 8.0]]
    torch.testing.assert_close(got, torch.tensor(expected))


def test_vectors_are_those_that_the_heads_read(
    tiny_model: Classifier, toy_examples: list[Example]
) -> None:
    windows = [example.windows[0] for example in toy_examples[:40]]
    vectors = pooled_vectors(tiny_model, windows, pad_id=0)
    ordered = sorted(windows, key=lambda window: window.n_tokens)
    with torch.no_grad():
        logits = tiny_model.heads(vectors)
    np.testing.assert_allclose(logits, TorchEncoder(tiny_model).logits(ordered), atol=1e-5)


def test_a_model_whose_logits_tell_as_well_carries_no_vectors(
    tiny_model: Classifier, splits: dict, task: TaskConfig, toy_examples: list[Example]
) -> None:
    with torch.no_grad():  # the energy of a head is what tells the odd texts' direction
        vectors = pooled_vectors(tiny_model, [e.windows[0] for e in splits["valid"]], pad_id=0)
        is_odd = torch.tensor(
            [len(e.windows[0].input_ids) > 15
             for e in sorted(splits["valid"], key=lambda e: e.windows[0].n_tokens)]
        )  # fmt: skip
        inside, odd = vectors[~is_odd], vectors[is_odd]
        design = torch.cat([inside, odd]) - inside.mean(0)
        wanted = torch.cat([torch.ones(len(inside)), -torch.ones(len(odd))]) * 20
        direction = torch.linalg.lstsq(design, wanted[:, None]).solution[:, 0]
        tiny_model.heads.weight[0] = direction
        tiny_model.heads.bias[0] = -(inside.mean(0) @ direction)
    assert add_likeness(tiny_model, splits, task, pad_id=0) == {}
    assert tiny_model.likeness is None


def test_without_texts_outside_to_judge_by_it_is_not_tried(
    blind: Classifier, splits: dict, task: TaskConfig, caplog: pytest.LogCaptureFixture
) -> None:
    inside = [e for e in splits["valid"] if e.targets["queue"] != OUTSIDE]
    assert add_likeness(blind, splits | {"valid": inside}, task, pad_id=0) == {}
    assert "head queue: knn is not tried" in caplog.text
    assert add_likeness(blind, splits | {"train": []}, task, pad_id=0) == {}


def test_neighbours_are_a_bounded_draw_of_training_texts_inside(
    blind: Classifier, splits: dict, task: TaskConfig
) -> None:
    splits["train"] += [
        replace(example, split="train") for example in splits["test"]
        if example.targets["queue"] == OUTSIDE
    ]  # fmt: skip
    assert add_likeness(blind, splits, task, pad_id=0) == {"queue": 5}
    assert blind.likeness is not None
    (kept,) = blind.likeness.buffers()
    assert kept.shape == (blind.encoder.config.hidden_size, 50)
    torch.testing.assert_close(kept.norm(dim=0), torch.ones(50))
    odd = [e.windows[0] for e in splits["train"] if e.targets["queue"] == OUTSIDE]
    vectors = torch.nn.functional.normalize(pooled_vectors(blind, odd, pad_id=0), dim=1)
    assert (vectors @ kept).max() < 0.9999  # none of them is among the kept
    first = kept.clone()
    assert add_likeness(blind, splits, task, pad_id=0) == {"queue": 5}
    assert torch.equal(next(blind.likeness.buffers()), first)


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_the_graph_answers_as_the_model_does_alone_and_among_others(
    pooling: str, task: TaskConfig, splits: dict, tmp_path: Path
) -> None:
    config = task.train.model_copy(update={"window_pooling": pooling, "dropout": 0.0})
    model = new_classifier(config, head_slices(task.heads)).eval()
    torch.nn.init.zeros_(model.heads.weight)
    changed = task.model_copy(update={"train": config})
    assert add_likeness(model, splits, changed, pad_id=0) == {"queue": 5}
    export_onnx(model, tmp_path / "model.onnx")
    encoder = OnnxEncoder(tmp_path / "model.onnx")
    windows = [example.windows[0] for example in splits["valid"]]
    got, expected = encoder.logits(windows), TorchEncoder(model).logits(windows)
    assert got.shape == (len(windows), 6 + (pooling == "attention"))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    alone = np.concatenate([encoder.logits([window]) for window in windows])
    assert got.tobytes() == alone.tobytes()


@pytest.mark.slow
def test_what_ships_in_8_bits_compares_in_32_and_scores_by_the_rule(
    blind: Classifier, splits: dict, task: TaskConfig, tiny_tokenizer_path: Path, tmp_path: Path
) -> None:
    save_checkpoint(blind, tmp_path / "checkpoint", tokenizer=tiny_tokenizer_path)
    examples = [example for split in splits.values() for example in split]
    source = Source("run-1", "d" * 64, "1-c", ("[CLS]", "[SEP]"), pad_id=0)
    spec = make_bundle(
        blind, examples, task, source, checkpoint=tmp_path / "checkpoint",
        folder=tmp_path / "bundle",
    ).spec  # fmt: skip
    rule, metrics = spec.scopes["queue"], spec.metrics["queue"]
    assert (spec.variant, rule.method, rule.column) == ("int8_dynamic", "knn", 5)
    assert rule.separation is not None
    assert rule.separation > 0.6
    assert metrics.outside_rows == 12
    assert metrics.outside_caught is not None
    assert metrics.outside_caught > 0
    (head, _) = head_slices(task.heads, spec.temperatures, scopes=spec.scopes)
    test = splits["test"]
    logits = OnnxEncoder(tmp_path / "bundle" / "model.onnx").logits([e.windows[0] for e in test])
    ones = np.ones(len(test), dtype=np.int64)
    found = answers(logits.astype(float), ones, ones, head)
    odd = [each.outside for each, e in zip(found, test, strict=True)
           if e.targets["queue"] == OUTSIDE]  # fmt: skip
    assert np.mean(odd) == pytest.approx(metrics.outside_caught)
    assert spec.digest != spec.model_copy(update={"scopes": {}}).digest


def test_it_is_no_part_that_may_be_quantized_and_stands_16_bits(
    blind: Classifier, splits: dict, task: TaskConfig, tmp_path: Path
) -> None:
    add_likeness(blind, splits, task, pad_id=0)
    windows = [example.windows[0] for example in splits["valid"]]
    maker = VariantMaker(blind, task.compress, calibration=windows, work=tmp_path)
    assert "likeness" not in maker.parts
    assert len(maker._never) == 1
    half = OnnxEncoder(convert_to_half(maker.fp32, tmp_path / "half.onnx"))
    exact = OnnxEncoder(maker.fp32).logits(windows)
    np.testing.assert_allclose(half.logits(windows), exact, atol=5e-3)
    (output,) = onnx.load(str(maker.fp32)).graph.output
    assert output.type.tensor_type.shape.dim[1].dim_value == 6  # a device's buffers are this wide


def test_knn_wants_outside_labels_and_no_more_neighbours_than_texts() -> None:
    with pytest.raises(ValueError, match="name such labels, or remove knn"):
        OutsideConfig(knn=KnnConfig())
    with pytest.raises(ValueError, match="neighbours 5 are more than the 4 texts: lower them"):
        KnnConfig(texts=4)
    head = HeadConfig(
        column="a", labels=("x",), outside=OutsideConfig(labels=("oos",), knn=KnnConfig())
    )
    assert head.outside is not None
    assert head.outside.knn == KnnConfig(texts=1000, neighbours=5)
