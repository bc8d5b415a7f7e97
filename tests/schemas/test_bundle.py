"""A bundle answers only the task it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.bundle import load_spec
from schemas.bundle import BundleSpec, GateResult
from schemas.errors import ArtifactError
from schemas.scope import ScopeRule

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import HeadConfig, TaskConfig


@pytest.fixture
def spec(tiny_bundle: Path) -> BundleSpec:
    return load_spec(tiny_bundle)


def with_head(task: TaskConfig, name: str, **changes: Any) -> TaskConfig:
    heads = {**task.heads, name: task.heads[name].model_copy(update=changes)}
    return task.model_copy(update={"heads": heads})


def with_section(task: TaskConfig, name: str, **changes: Any) -> TaskConfig:
    return task.model_copy(update={name: getattr(task, name).model_copy(update=changes)})


def test_its_own_task_fits(spec: BundleSpec, tiny_task: TaskConfig) -> None:
    spec.check_fits(tiny_task)


def test_what_does_not_touch_scores_may_differ(spec: BundleSpec, tiny_task: TaskConfig) -> None:
    spec.check_fits(with_head(tiny_task, "queue", review_below=0.9))
    spec.check_fits(with_section(tiny_task, "contract", min_rows=0))
    spec.check_fits(with_section(tiny_task, "score", keep_runs=4))
    spec.check_fits(with_section(tiny_task, "train", epochs=9))


@pytest.mark.parametrize("change", ["fewer", "more", "reordered"])
def test_other_heads_are_refused(spec: BundleSpec, tiny_task: TaskConfig, change: str) -> None:
    queue, topics = tiny_task.heads["queue"], tiny_task.heads["topics"]
    heads: dict[str, HeadConfig] = {
        "fewer": {"queue": queue},
        "more": {"queue": queue, "topics": topics, "third": queue},
        "reordered": {"topics": topics, "queue": queue},
    }[change]
    with pytest.raises(ArtifactError, match=r"has heads \['queue', 'topics'\], task 'tiny' has"):
        spec.check_fits(tiny_task.model_copy(update={"heads": heads}))


@pytest.mark.parametrize(
    "labels", [("technical", "billing", "shipping"), ("billing", "technical", "returns")]
)
def test_other_labels_are_refused(
    spec: BundleSpec, tiny_task: TaskConfig, labels: tuple[str, ...]
) -> None:
    """FAILURES row 42: a label map in another order gives every score the wrong name."""
    with pytest.raises(ArtifactError, match=r"head 'queue': labels of the model .* name or order"):
        spec.check_fits(with_head(tiny_task, "queue", labels=labels))


def test_another_kind_of_head_is_refused(spec: BundleSpec, tiny_task: TaskConfig) -> None:
    """A sigmoid over logits that were trained with softmax gives numbers that mean nothing."""
    with pytest.raises(ArtifactError, match=r"head 'queue': the model has kind 'single', .*multi"):
        spec.check_fits(with_head(tiny_task, "queue", kind="multi"))


@pytest.mark.parametrize(
    ("section", "changes"), [("clean", {"steps": ("unicode",)}), ("window", {"max_tokens": 64})]
)
def test_other_text_steps_are_refused(
    spec: BundleSpec, tiny_task: TaskConfig, section: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(ArtifactError, match=f"section '{section}' of task 'tiny' is not what"):
        spec.check_fits(with_section(tiny_task, section, **changes))


def test_other_text_columns_are_refused(spec: BundleSpec, tiny_task: TaskConfig) -> None:
    with pytest.raises(ArtifactError, match=r"reads columns \['subject', 'body'\], task .*\['bo"):
        spec.check_fits(with_section(tiny_task, "data", text_columns=("body",)))


def test_the_digest_covers_all_that_can_change_a_score(spec: BundleSpec) -> None:
    changes: list[dict[str, Any]] = [
        {"files": {**spec.files, "model.onnx": "f" * 64}},
        {"label_digests": {**spec.label_digests, "queue": "f" * 64}},
        {"temperatures": {"queue": 1.0, "topics": 1.0}},
        {"cleaner_version": "2-abc"},
        {"task": with_section(spec.task, "window", stride_tokens=4)},
        {"task": with_section(spec.task, "data", text_columns=("body", "subject"))},
    ]
    digests = {spec.model_copy(update=change).digest for change in changes}
    assert len(digests | {spec.digest}) == len(changes) + 1


def test_the_digest_does_not_cover_what_cannot(spec: BundleSpec) -> None:
    told = spec.model_copy(update={"training_run": "other", "metrics": {}, "backbone": "hf:x"})
    assert told.digest == spec.digest


def test_a_gate_tells_itself_in_one_line() -> None:
    gate = GateResult(
        variant="fp32", gate="parity", value=0.002, rule="<=", threshold=0.001, passed=False
    )
    assert str(gate) == "fp32 parity: 0.002 <= 0.001 FAILED"


def test_other_aspects_are_refused(spec: BundleSpec, tiny_task: TaskConfig) -> None:
    """Columns would be read as those of another aspect."""
    aspects = {"kind": "aspect", "labels": ("good", "bad")}
    mine = with_head(tiny_task, "topics", aspects=("food", "staff"), **aspects)
    digests = {name: labels.digest for name, labels in mine.label_sets.items()}
    made = spec.model_copy(update={"task": mine, "label_digests": digests})
    made.check_fits(mine)
    other = with_head(tiny_task, "topics", aspects=("staff", "food"), **aspects)
    with pytest.raises(ArtifactError, match="head 'topics': labels of the model"):
        made.check_fits(other)


def test_the_digest_covers_how_windows_are_pooled(spec: BundleSpec) -> None:
    digests = {
        spec.model_copy(
            update={"task": with_section(spec.task, "train", window_pooling=way)}
        ).digest
        for way in ("mean", "max", "first", "attention")
    }
    assert len(digests) == 4
    assert spec.digest in digests


def test_pooling_is_the_models_own_business(spec: BundleSpec, tiny_task: TaskConfig) -> None:
    """It is read from the bundle, so that a task file that moved on can still score with it."""
    spec.check_fits(with_section(tiny_task, "train", window_pooling="max"))


def test_the_digest_covers_rules_for_texts_outside(spec: BundleSpec) -> None:
    rules = [
        ScopeRule(method="energy", threshold=threshold, kept=0.95, rows_inside=9, rows_outside=0)
        for threshold in (1.5, 1.25)
    ]
    digests = {spec.model_copy(update={"scopes": {"queue": rule}}).digest for rule in rules}
    assert len(digests | {spec.digest}) == 3
    assert spec.model_copy(update={"scopes": {}}).digest == spec.digest


def test_a_bundle_of_before_there_were_rules_reads_and_a_rule_comes_back_exactly(
    spec: BundleSpec, tmp_path: Path
) -> None:
    raw = spec.model_dump(mode="json")
    del raw["scopes"]
    for name in ("inside_kept", "outside_caught", "outside_rows"):
        del raw["metrics"]["queue"][name]
    assert BundleSpec.model_validate(raw) == spec
    rule = ScopeRule(method="energy", threshold=0.1 + 0.2, kept=0.95, rows_inside=9, rows_outside=0)
    path = tmp_path / "bundle.json"
    spec.model_copy(update={"scopes": {"queue": rule}}).write(path)
    assert BundleSpec.read(path).scopes["queue"].threshold == 0.1 + 0.2
