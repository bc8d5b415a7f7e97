"""The part that INT8 ruins is found, and left FP32 where the task says so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pipeline.bundle import load_spec
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model import sweep as sweep_module
from pipeline.model.bundling import Source, make_bundle
from pipeline.model.checkpoint import save_checkpoint
from pipeline.model.facts import file_megabytes
from pipeline.model.gate_checks import at_most
from pipeline.model.labelled import label_matrix
from pipeline.model.metrics import fit_temperature
from pipeline.model.outputs import run_encoder
from pipeline.model.sweep import Sample, divergence, rescue, sweep_parts
from pipeline.model.variants import VariantMaker
from schemas.bundle import MODEL_FILE, GateResult
from schemas.errors import ConfigError
from schemas.sweep import SWEEP_FILE, Sweeps
from schemas.task import CompressConfig

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.sweep import Sweep
    from schemas.task import TaskConfig, Variant

RUINED = "layers.1.feed_forward"
PARTS = [
    "embeddings", "layers.0.attention", "layers.0.feed_forward", "layers.1.attention", RUINED,
    "heads",
]  # fmt: skip


@pytest.fixture
def model(tiny_model: Classifier) -> Classifier:
    """One unit of a layer is so large, for nobody, that INT8 has no steps left for the others."""
    layer: Any = tiny_model.encoder.encoder.layer[1]  # type: ignore[union-attr]
    with torch.no_grad():
        layer.intermediate.dense.bias[0] = 4000.0
        layer.output.dense.weight[:, 0] = 0.0
        tiny_model.heads.weight *= 20
    return tiny_model


def maker_of(
    model: Classifier, examples: list[Example], work: Path, **settings: Any
) -> VariantMaker:
    config = CompressConfig(prefer=("int8_static", "fp32"), **settings)
    windows = [example.windows[0] for example in examples[:20]]
    return VariantMaker(model, config, calibration=windows, work=work)


def sample_of(maker: VariantMaker, examples: list[Example], heads: tuple[HeadSlice, ...]) -> Sample:
    return Sample.of(maker.fp32, examples[:24], heads, pooling="mean")


def gate(path: Path, sample: Sample, bound: float) -> list[GateResult]:
    kl = sample.measure("all", 1, path).kl
    return [
        GateResult(variant="int8_static", gate="kl", value=kl, rule="<=", threshold=bound,
                   passed=kl <= bound)
    ]  # fmt: skip


def test_the_part_that_int8_ruins_comes_first(
    model: Classifier, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...], tmp_path: Path
) -> None:
    maker = maker_of(model, toy_examples, tmp_path)
    sample = sample_of(maker, toy_examples, toy_heads)
    found = sweep_parts(maker, "int8_static", sample)
    assert (found.variant, found.texts) == ("int8_static", 24)
    assert {row.name: row.products for row in found.rows} == dict.fromkeys(PARTS, 2) | {
        "embeddings": 3, "layers.0.attention": 4, "layers.1.attention": 4, "heads": 1,
    }  # fmt: skip
    worst, second, *_ = found.rows
    assert worst.name == RUINED
    assert worst.kl > 5 * second.kl > 0
    assert worst.agreement <= second.agreement <= 1
    assert [row.name for row in found.with_kept((RUINED,)).rows if row.kept] == [RUINED]
    same = sample.measure("fp32", 1, maker.fp32)
    assert (same.kl, same.agreement, same.macro_f1_drop) == (0.0, 1.0, 0.0)


def rescued(
    maker: VariantMaker, sample: Sample, bound: float
) -> tuple[list[GateResult], list[Sweep], dict[Any, Path]]:
    files = maker.make_all()
    before = gate(files["int8_static"], sample, bound)
    done = rescue(
        maker, files, before, measure=lambda _, path: gate(path, sample, bound),
        take_sample=lambda: sample,
    )  # fmt: skip
    return done.gates, done.sweeps, files


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model this small gains nothing by INT8."""
    monkeypatch.setattr(sweep_module, "_speed_gain", lambda *_: 2.0)


@pytest.mark.usefixtures("_fast")
def test_a_failing_variant_is_saved_by_the_fewest_parts(
    model: Classifier, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...], tmp_path: Path
) -> None:
    maker = maker_of(model, toy_examples, tmp_path, keep_fp32="auto")
    sample = sample_of(maker, toy_examples, toy_heads)
    bad = sample.measure("all", 1, maker.make_all()["int8_static"]).kl
    gates, (sweep,), files = rescued(maker, sample, bad / 3)
    assert [found.passed for found in gates] == [True]
    assert [row.name for row in sweep.rows if row.kept] == [RUINED]
    assert maker.describe("int8_static", files["int8_static"]).kept_fp32 == (RUINED,)
    assert sample.measure("all", 1, files["int8_static"]).kl == gates[0].value < bad / 3


def test_without_a_gain_in_speed_it_stays_failed(
    model: Classifier, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sweep_module, "_speed_gain", lambda *_: 1.05)
    maker = maker_of(model, toy_examples, tmp_path, keep_fp32="auto")
    gates, (sweep,), files = rescued(maker, sample_of(maker, toy_examples, toy_heads), 1e-9)
    assert [found.passed for found in gates] == [False]
    assert not any(row.kept for row in sweep.rows)
    assert maker.describe("int8_static", files["int8_static"]).kept_fp32 == ()


def size_gate(path: Path, most_mb: float, variant: Variant = "int8_static") -> GateResult:
    return at_most(variant, "file_mb", file_megabytes(path), most_mb)


@pytest.mark.usefixtures("_fast")
@pytest.mark.parametrize("room", [True, False], ids=["room for FP32 parts", "no room"])
def test_a_variant_is_saved_only_as_far_as_its_size_allows(
    room: bool, model: Classifier, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...],
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    maker = maker_of(model, toy_examples, tmp_path, keep_fp32="auto")
    sample, files = sample_of(maker, toy_examples, toy_heads), maker.make_all()
    made = files["int8_static"]
    bound = sample.measure("all", 1, made).kl / 3
    most_mb = file_megabytes(files["fp32"] if room else made)
    measured: list[float] = []

    def measure(_: Variant, path: Path) -> list[GateResult]:
        measured.append(file_megabytes(path))
        return [*gate(path, sample, bound), size_gate(path, most_mb)]

    # FP32 is too large itself where there is no room, which says nothing of what is made of it.
    fp32 = size_gate(files["fp32"], most_mb, "fp32")
    done = rescue(
        maker, files, [fp32, *measure("int8_static", made)], measure=measure,
        take_sample=lambda: sample,
    )  # fmt: skip
    assert fp32.passed is room
    assert (files["int8_static"] == made) is not room
    kept = maker.describe("int8_static", files["int8_static"]).kept_fp32
    if room:
        assert kept == (RUINED,)
        assert all(found.passed for found in done.gates)
    else:
        assert kept == ()
        assert len(measured) == 2  # more parts in FP32 were not tried
        assert measured[1] > measured[0] == most_mb
        assert "more parts in FP32 would only cost more" in caplog.text


def test_what_is_too_large_already_is_not_swept(
    model: Classifier, toy_examples: list[Example], tmp_path: Path
) -> None:
    maker = maker_of(model, toy_examples, tmp_path, keep_fp32="auto")
    files = maker.make_all()
    gates = [size_gate(files["int8_static"], 0.001)]
    done = rescue(
        maker, files, gates, measure=lambda *_: [], take_sample=lambda: pytest.fail("swept")
    )
    assert (done.gates, done.sweeps) == (gates, [])


@pytest.mark.parametrize(
    ("settings", "bound", "sweeps"),
    [({}, 1e-9, 0), ({"keep_fp32": "auto"}, 1e9, 0), ({"sweep": True}, 1e9, 1)],
    ids=["not asked for", "passes", "swept anyway"],
)
def test_what_passes_or_is_not_to_be_changed_stays(
    settings: dict[str, Any], bound: float, sweeps: int, model: Classifier,
    toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...], tmp_path: Path,
) -> None:  # fmt: skip
    maker = maker_of(model, toy_examples, tmp_path, **settings)
    sample = sample_of(maker, toy_examples, toy_heads)
    gates, made, files = rescued(maker, sample, bound)
    assert len(made) == sweeps
    assert [found.passed for found in gates] == [bound > 1]
    assert maker.describe("int8_static", files["int8_static"]).kept_fp32 == ()


def test_parts_that_the_task_names_stay_fp32(
    model: Classifier, toy_examples: list[Example], tmp_path: Path
) -> None:
    plain = maker_of(model, toy_examples, tmp_path / "a").make_all()
    maker = maker_of(model, toy_examples, tmp_path / "b", keep_fp32=(RUINED,))
    kept = maker.make_all()
    windows = [example.windows[0] for example in toy_examples[:20]]
    wanted, without, named = (
        OnnxEncoder(path).logits(windows)
        for path in (kept["fp32"], plain["int8_static"], kept["int8_static"])
    )
    assert np.abs(named - wanted).mean() < np.abs(without - wanted).mean() / 2
    described = maker.describe("int8_static", kept["int8_static"])
    assert described.kept_fp32 == (RUINED,)
    assert (described.calibration, described.int8_weights) == ("minmax", "signed")
    assert maker.describe("fp32", kept["fp32"]).calibration is None
    with pytest.raises(ConfigError, match=r"'layers\.7\.attention' is no part of this encoder"):
        maker_of(model, toy_examples, tmp_path / "c", keep_fp32=("layers.7.attention",)).make_all()


def test_divergence_by_kind_of_head(toy_heads: tuple[HeadSlice, ...]) -> None:
    queue, topics = toy_heads
    half, quarter = np.array([[0.5, 0.5, 0.0]]), np.array([[0.25, 0.75, 0.0]])
    expected = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert divergence(half, quarter, queue) == pytest.approx(expected)
    yes = partial(divergence, np.array([[0.5, 1.0]]), head=topics)
    assert yes(np.array([[0.25, 1.0]])) == pytest.approx(expected)
    assert yes(np.array([[0.5, 1.0]])) == pytest.approx(0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("_fast")
def test_a_bundle_ships_what_was_saved_and_tells_of_it(
    model: Classifier, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...],
    tiny_task: TaskConfig, tiny_tokenizer_path: Path, tmp_path: Path,
) -> None:  # fmt: skip
    compress = tiny_task.compress.model_copy(
        update={"prefer": ("int8_static", "fp32"), "gate_texts": 40, "calibration_texts": 40,
                "keep_fp32": "auto", "sweep_texts": 20, "min_label_agreement": 0.8,
                "max_metric_drop": 0.5, "max_slice_metric_drop": 0.5, "max_ece_increase": 0.5}
    )  # fmt: skip
    task = tiny_task.model_copy(update={"compress": compress})
    save_checkpoint(model, tmp_path / "checkpoint", tokenizer=tiny_tokenizer_path)
    source = Source("run-1", "d" * 64, "1-c", ("[CLS]", "[SEP]"), pad_id=0)
    bundled = make_bundle(
        model, toy_examples, task, source,
        checkpoint=tmp_path / "checkpoint", folder=tmp_path / "bundle",
    )  # fmt: skip
    spec = load_spec(tmp_path / "bundle")
    assert spec == bundled.spec
    assert spec.variant == "int8_static"
    assert spec.export is not None
    assert RUINED in spec.export.kept_fp32
    (sweep,) = Sweeps.read(tmp_path / "bundle" / SWEEP_FILE).sweeps
    assert (sweep,) == bundled.sweeps
    assert sweep.texts == 20
    assert tuple(row.name for row in sweep.rows if row.kept) == spec.export.kept_fp32
    assert all(gate.passed for gate in spec.gates if gate.variant == "int8_static")
    valid = [example for example in toy_examples if example.split == "valid"]
    logits = run_encoder(OnnxEncoder(tmp_path / "bundle" / MODEL_FILE), valid).pooled_logits()
    assert spec.temperatures == {
        head.name: fit_temperature(logits, label_matrix(valid, head.name, head.config), head)
        for head in toy_heads
    }
