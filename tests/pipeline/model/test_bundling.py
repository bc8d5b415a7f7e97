"""From a trained model to a bundle, and what the bundle's readers must notice."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pipeline.bundle import load_spec
from pipeline.clean import Cleaner
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.heads import answer, head_slices
from pipeline.model.bundling import Bundled, Source, make_bundle
from pipeline.model.card import model_card
from pipeline.model.checkpoint import new_classifier, save_checkpoint
from pipeline.model.fit import fit
from pipeline.model.labelled import OUTSIDE, label_matrix
from pipeline.model.metrics import fit_temperature, head_metrics
from pipeline.model.outputs import run_encoder
from pipeline.model.plots import plot_run
from pipeline.model.recipe import Recipe
from schemas.bundle import LanguageMetrics
from schemas.errors import ArtifactError, DataContractError
from schemas.fingerprint import digest_of_file
from schemas.head import OutsideConfig
from schemas.home import Home
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TaskConfig

FILES = ["bundle.json", "card.md", "model.onnx", "tokenizer.json", "verification.parquet"]


def source(task: TaskConfig) -> Source:
    cleaner = Cleaner(task.clean, special_tokens=("[CLS]", "[SEP]"))
    return Source(
        "run-1", "d" * 64, cleaner.version, ("[CLS]", "[SEP]"), pad_id=0,
        near_duplicates={"train-test": 3}, conflicting_labels={"queue": 2},
    )  # fmt: skip


@pytest.fixture(scope="module")
def task(tiny_task: TaskConfig) -> TaskConfig:
    """The tiny task with INT8 first and a gate that a tiny model can pass."""
    compress = tiny_task.compress.model_copy(
        update={"prefer": ("int8_static", "fp32"), "gate_texts": 40, "calibration_texts": 40,
                "min_label_agreement": 0.5, "max_metric_drop": 0.5}
    )  # fmt: skip
    train = tiny_task.train.model_copy(update={"dropout": 0.0, "head_learning_rate": 1e-2})
    return tiny_task.model_copy(update={"compress": compress, "train": train})


@pytest.fixture(scope="module")
def trained(
    task: TaskConfig, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...]
) -> Classifier:
    model = new_classifier(task.train, toy_heads)
    fit(
        model,
        train=[example for example in toy_examples if example.split == "train"],
        valid=[example for example in toy_examples if example.split == "valid"],
        heads=toy_heads, config=task.train, recipe=Recipe(4, 5e-3, "a test"),
    )  # fmt: skip
    return model.eval()


@pytest.fixture(scope="module")
def checkpoint(
    trained: Classifier, tiny_tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("run") / "checkpoint"
    save_checkpoint(trained, folder, tokenizer=tiny_tokenizer_path)
    return folder


@pytest.fixture(scope="module")
def bundled(
    trained: Classifier, toy_examples: list[Example], task: TaskConfig, checkpoint: Path
) -> Bundled:
    return make_bundle(
        trained, toy_examples, task, source(task),
        checkpoint=checkpoint, folder=checkpoint.with_name("bundle"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(bundled: Bundled, checkpoint: Path) -> Path:
    assert bundled.spec.variant == "int8_static"
    return checkpoint.with_name("bundle")


def test_the_bundle_is_whole(bundled: Bundled, folder: Path, task: TaskConfig) -> None:
    assert sorted(path.name for path in folder.iterdir()) == FILES
    spec = load_spec(folder)
    assert spec == bundled.spec
    assert spec.files == {name: digest_of_file(folder / name) for name in FILES[2:4]}
    assert spec.verification == digest_of_file(folder / "verification.parquet")
    assert spec.label_digests == {name: held.digest for name, held in task.label_sets.items()}
    assert (spec.training_run, spec.data_digest) == ("run-1", "d" * 64)
    assert spec.cleaner_version == source(task).cleaner_version
    assert {gate.variant for gate in spec.gates} == {"fp32", "int8_static"}
    assert spec.gates[0].gate == "parity"
    assert all(0.25 <= temperature <= 8 for temperature in spec.temperatures.values())
    spec.check_fits(task)


def test_metrics_are_those_of_the_shipped_file_on_test_records(
    bundled: Bundled, folder: Path, toy_examples: list[Example], task: TaskConfig
) -> None:
    test = [example for example in toy_examples if example.split == "test"]
    assert bundled.test == test
    outputs = run_encoder(OnnxEncoder(folder / "model.onnx"), test)
    for head in head_slices(task.heads, bundled.spec.temperatures):
        target = label_matrix(test, head.name, head.config)
        wanted = head_metrics(
            outputs.scores(head), target, head, seed=task.train.seed, langs=["en"] * len(test)
        )
        assert bundled.spec.metrics[head.name] == wanted
        assert wanted.rows == len(test)
        assert bundled.spec.fp32_metrics[head.name].rows == len(test)
    assert bundled.spec.metrics["queue"].accuracy > 0.6


def test_temperatures_fit_the_shipped_file_on_validation_records(
    bundled: Bundled, folder: Path, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...]
) -> None:
    valid = [example for example in toy_examples if example.split == "valid"]
    logits = run_encoder(OnnxEncoder(folder / "model.onnx"), valid).pooled_logits()
    assert bundled.spec.temperatures == {
        head.name: fit_temperature(logits, label_matrix(valid, head.name, head.config), head)
        for head in toy_heads
    }


def test_facts_tell_what_a_variant_weighs(bundled: Bundled) -> None:
    assert set(bundled.spec.facts) == {"fp32", "int8_static"}
    assert bundled.spec.facts["int8_static"].megabytes < bundled.spec.facts["fp32"].megabytes
    assert all(facts.windows_per_s > 0 for facts in bundled.spec.facts.values())


def test_quality_is_told_by_language(bundled: Bundled, folder: Path) -> None:
    by_lang = bundled.spec.metrics["queue"].by_lang
    assert {lang: found.rows for lang, found in by_lang.items()} == {"en": 39}
    assert by_lang["en"].accuracy == bundled.spec.metrics["queue"].accuracy
    assert "by language" not in (folder / "card.md").read_text(encoding="utf-8")


def test_the_card_of_several_languages_has_a_row_for_each(bundled: Bundled) -> None:
    queue = bundled.spec.metrics["queue"]
    by_lang = {"en": queue.by_lang["en"], "de": LanguageMetrics(rows=7)}
    metrics = bundled.spec.metrics | {"queue": queue.model_copy(update={"by_lang": by_lang})}
    card = model_card(bundled.spec.model_copy(update={"metrics": metrics}))
    (low, high), (f1_low, f1_high) = queue.accuracy_interval, queue.macro_f1_interval
    assert (
        f"| queue | en | 39 | {queue.accuracy:.4f} | {low:.3f} to {high:.3f} "
        f"| {queue.macro_f1:.4f} | {f1_low:.3f} to {f1_high:.3f} |\n"
        "| queue | de | 7 | - | - | - | - |\n"
    ) in card


def test_the_card_tells_of_leaks_and_conflicting_labels(bundled: Bundled, folder: Path) -> None:
    assert bundled.spec.near_duplicates == {"train-test": 3}
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert "- 3 records of train left out for standing nearly in test\n" in card
    assert "- 2 texts have more than one label of **queue**; " in card
    bare = bundled.spec.model_copy(update={"near_duplicates": {}, "conflicting_labels": {}})
    assert "## Labelled data" not in model_card(bare)


def test_the_card_has_the_numbers(bundled: Bundled, folder: Path) -> None:
    card = (folder / "card.md").read_text(encoding="utf-8")
    queue = bundled.spec.metrics["queue"]
    low, high = queue.accuracy_interval
    assert f"| queue | {queue.rows} | {queue.accuracy:.4f} ({low:.3f} to {high:.3f}) " in card
    assert f"| {bundled.spec.fp32_metrics['queue'].macro_f1:.4f} | " in card
    assert f"{queue.expected_calibration_error:.4f} | {queue.majority_accuracy:.4f} |" in card
    linear = bundled.spec.baseline_metrics["queue"]["tfidf_linear"]
    assert f"| {linear['macro_f1']:.4f} | {queue.expected_calibration_error:.4f} | " in card
    assert (linear["rows"], linear["train_rows"]) == (39, 162)
    bare = model_card(bundled.spec.model_copy(update={"baseline_metrics": {}}))
    assert f"| - | {queue.expected_calibration_error:.4f} | " in bare
    assert "TF-IDF is a linear model" not in bare
    assert "- **topics** (multi): `price`, `quality`; under confidence 0.5" in card
    assert "Variant `int8_static`" in card
    assert card.count("| int8_static | ") == 8
    assert "Texts longer than 32 tokens" in card


def test_fp32_alone_makes_no_other_variant(
    trained: Classifier, toy_examples: list[Example], tiny_task: TaskConfig, checkpoint: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    made = make_bundle(
        trained, toy_examples, tiny_task, source(tiny_task),
        checkpoint=checkpoint, folder=tmp_path / "bundle",
    )  # fmt: skip
    assert made.spec.variant == "fp32"
    assert list(made.spec.facts) == ["fp32"]
    assert made.spec.metrics["queue"].rows == made.spec.fp32_metrics["queue"].rows
    assert made.spec.metrics["queue"].macro_f1 == made.spec.fp32_metrics["queue"].macro_f1
    assert sorted(path.name for path in (tmp_path / "bundle").iterdir()) == FILES


def test_without_validation_records_there_is_no_bundle(
    trained: Classifier, toy_examples: list[Example], tiny_task: TaskConfig, checkpoint: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    train = [example for example in toy_examples if example.split == "train"]
    with pytest.raises(DataContractError, match="no validation records"):
        make_bundle(
            trained, train, tiny_task, source(tiny_task),
            checkpoint=checkpoint, folder=tmp_path / "bundle",
        )  # fmt: skip
    assert not (tmp_path / "bundle").exists()


def test_when_no_gate_passes_there_is_no_bundle(
    trained: Classifier, toy_examples: list[Example], tiny_task: TaskConfig, checkpoint: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    strict = tiny_task.compress.model_copy(update={"max_logit_difference_fp32": 1e-12})
    with pytest.raises(ArtifactError, match=r"no variant of fp32 .*: fp32 parity: .*FAILED"):
        make_bundle(
            trained, toy_examples, tiny_task.model_copy(update={"compress": strict}),
            source(tiny_task), checkpoint=checkpoint, folder=tmp_path / "bundle",
        )  # fmt: skip
    assert not (tmp_path / "bundle").exists()


def test_another_label_order_does_not_fit(bundled: Bundled, task: TaskConfig) -> None:
    queue = task.heads["queue"]
    turned = queue.model_copy(update={"labels": queue.labels[::-1]})
    other = task.model_copy(update={"heads": {**task.heads, "queue": turned}})
    with pytest.raises(ArtifactError, match=r"head 'queue': labels .* differ in name or order"):
        bundled.spec.check_fits(other)
    swapped = task.model_copy(update={"heads": dict(reversed(task.heads.items()))})
    with pytest.raises(ArtifactError, match="the model has heads"):
        bundled.spec.check_fits(swapped)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_altered_files_are_noticed(name: str, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(folder, copy)
    (copy / name).write_bytes((copy / name).read_bytes()[:-10])
    with pytest.raises(ArtifactError, match=rf"{name} has digest \w+, expected \w+; it was cut"):
        load_spec(copy)
    (copy / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name} is missing"):
        load_spec(copy)


def test_plots_have_known_names(bundled: Bundled, checkpoint: Path, tmp_path: Path) -> None:
    place = TrainingRun(Home(tmp_path), "tiny", "run-1")
    place.folder.mkdir(parents=True)
    history = [
        {"epoch": epoch, "train_loss": 1.0, "valid_loss": 1.0, "valid_macro_f1": 0.5}
        for epoch in (1, 2)
    ]
    (place.folder / "progress.json").write_text(json.dumps({"history": history}))
    plot_run(bundled, place)
    pages = sorted(place.page.iterdir())
    assert [page.name for page in pages] == [
        "confusion_queue.png", "curves.png", "reliability_queue.png", "reliability_topics.png",
    ]  # fmt: skip
    for page in pages:
        content = page.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 5000


def test_outputs_aggregate_windows_by_tokens(
    trained: Classifier, folder: Path, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...]
) -> None:
    one, two = toy_examples[0], toy_examples[1]
    both = type(one)(**{**vars(one), "windows": one.windows + two.windows})
    encoder = OnnxEncoder(folder / "model.onnx")
    joined, apart = run_encoder(encoder, [both]), run_encoder(encoder, [one, two])
    weights = np.array([one.windows[0].n_tokens, two.windows[0].n_tokens])
    weights = weights / weights.sum()
    for head in toy_heads:
        np.testing.assert_allclose(joined.scores(head)[0], weights @ apart.scores(head))
    np.testing.assert_allclose(joined.pooled_logits()[0], weights @ apart.pooled_logits())


@pytest.fixture(scope="module")
def asking(tiny_task: TaskConfig) -> TaskConfig:
    """The tiny task, whose queue may have texts outside."""
    outside = OutsideConfig(labels=("oos",), keep=0.9)
    queue = tiny_task.heads["queue"].model_copy(update={"outside": outside})
    return tiny_task.model_copy(update={"heads": {**tiny_task.heads, "queue": queue}})


@pytest.fixture(scope="module")
def with_outside(
    toy_examples: list[Example], make_example: Callable[..., Example]
) -> list[Example]:
    """The toy set, and ten texts outside to validate and fourteen to test, without a keyword."""
    plain = [
        make_example(f"o{n}", queue=None, split="valid" if n < 10 else "test", seed=1000 + n)
        for n in range(24)
    ]
    return toy_examples + [
        replace(example, targets={**example.targets, "queue": OUTSIDE}) for example in plain
    ]


def test_texts_outside_are_learnt_on_validation_and_measured_on_test_as_they_are_scored(
    trained: Classifier, with_outside: list[Example], toy_examples: list[Example],
    asking: TaskConfig, tiny_task: TaskConfig, checkpoint: Path, tmp_path: Path,
) -> None:  # fmt: skip
    place = {"checkpoint": checkpoint, "folder": tmp_path / "bundle"}
    spec = make_bundle(trained, with_outside, asking, source(asking), **place).spec
    assert load_spec(tmp_path / "bundle") == spec
    assert list(spec.scopes) == ["queue"]
    rule, queue = spec.scopes["queue"], spec.metrics["queue"]
    assert (rule.rows_inside, rule.rows_outside) == (39, 10)
    assert 0.9 <= rule.kept < 1.0
    assert rule.separation is not None
    assert rule.separation > 0.6
    (head, _) = head_slices(asking.heads, spec.temperatures, scopes=spec.scopes)
    encoder = OnnxEncoder(tmp_path / "bundle" / "model.onnx")
    test = [example for example in with_outside if example.split == "test"]
    is_outside = np.array(
        [
            answer(encoder.logits(one.windows).astype(float), np.array([9]), head).outside
            for one in test
        ]
    )
    truth = np.array([one.targets["queue"] == OUTSIDE for one in test])
    assert (queue.rows, queue.outside_rows) == (39, 14)
    assert queue.inside_kept == pytest.approx(1 - is_outside[~truth].mean())
    assert queue.outside_caught == pytest.approx(is_outside[truth].mean())
    card = (tmp_path / "bundle" / "card.md").read_text(encoding="utf-8")
    assert (
        f"| queue | {rule.method} | {rule.threshold:.4f} | {queue.inside_kept:.4f} "
        f"| {queue.outside_caught:.4f} | 14 |\n"
    ) in card


def test_texts_outside_alter_nothing_else(
    trained: Classifier, with_outside: list[Example], toy_examples: list[Example],
    asking: TaskConfig, tiny_task: TaskConfig, checkpoint: Path, tmp_path: Path,
) -> None:  # fmt: skip
    """Neither temperature nor the figures of the labels know of them."""
    folders = [tmp_path / "asked", tmp_path / "plain"]
    asked = make_bundle(
        trained, with_outside, asking, source(asking), checkpoint=checkpoint, folder=folders[0]
    ).spec
    plain = make_bundle(
        trained, toy_examples, tiny_task, source(tiny_task),
        checkpoint=checkpoint, folder=folders[1],
    ).spec  # fmt: skip
    assert plain.scopes == {}
    assert "no label fits" not in (folders[1] / "card.md").read_text(encoding="utf-8")
    assert asked.temperatures["queue"] == plain.temperatures["queue"]
    gone = {"inside_kept": None, "outside_caught": None, "outside_rows": None}
    assert asked.metrics["queue"].model_copy(update=gone) == plain.metrics["queue"]
    assert asked.baseline_metrics["queue"] == plain.baseline_metrics["queue"]
