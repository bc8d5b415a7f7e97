"""Bundles on disk: digests, label order and cleaner are checked before anything is scored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pipeline.bundle import calibrate_host, load_spec, scoring_flow, text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.model.backbone import load_encoder, locate, save_tokenizer
from pipeline.rows import RawRow
from schemas.bundle import BUNDLE_FILE, MODEL_FILE, TOKENIZER_FILE, BundleSpec
from schemas.errors import ArtifactError, ConfigError
from schemas.fingerprint import digest_of_file
from schemas.head import OutsideConfig
from schemas.scope import ScopeRule

if TYPE_CHECKING:
    from schemas.task import TaskConfig


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def row(number: int, subject: str, body: str) -> RawRow:
    values = {"ticket_id": f"t{number}", "subject": subject, "body": body}
    return RawRow("f", number, values, b"raw")


def test_the_tiny_backbone_loads_as_any_other(tiny_backbone: Path, tmp_path: Path) -> None:
    name = f"path:{tiny_backbone}"
    digest = save_tokenizer(name, tmp_path / TOKENIZER_FILE)
    assert locate(name) == str(tiny_backbone)
    assert load_encoder(name, dropout=0.1)(torch.tensor([[2, 5, 3]]))[0].shape == (1, 3, 32)
    assert digest == digest_of_file(tmp_path / TOKENIZER_FILE)


def test_a_sound_bundle_loads_and_scores(bundle: Path, tiny_task: TaskConfig) -> None:
    assert load_spec(bundle).variant == "fp32"
    outcome = scoring_flow(bundle, tiny_task).score(
        [row(0, "refund please", "the card was charged"), row(1, "", "the app is slow")]
    )
    assert [scored.prepared.record.record_id for scored in outcome.scored] == ["t0", "t1"]
    queue = outcome.scored[0].answers["queue"]
    assert queue.scores.sum() == pytest.approx(1.0)
    assert queue.confidence == max(queue.scores)


@pytest.mark.parametrize("name", [MODEL_FILE, TOKENIZER_FILE])
def test_a_truncated_file_is_named_with_both_digests(bundle: Path, name: str) -> None:
    path = bundle / name
    path.write_bytes(path.read_bytes()[:-100])
    got = digest_of_file(path)[:12]
    with pytest.raises(ArtifactError, match=rf"{name} has digest {got}, expected .*fetch"):
        load_spec(bundle)


@pytest.mark.parametrize("name", [MODEL_FILE, TOKENIZER_FILE])
def test_a_missing_file_is_named(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    with pytest.raises(ArtifactError, match=f"{name} is missing; fetch the bundle again"):
        load_spec(bundle)


def test_a_folder_without_description_is_no_bundle(bundle: Path) -> None:
    (bundle / BUNDLE_FILE).unlink()
    with pytest.raises(ArtifactError, match=r"bundle\.json does not exist"):
        load_spec(bundle)


def test_another_cleaner_than_at_training_is_refused(bundle: Path, tiny_task: TaskConfig) -> None:
    spec = BundleSpec.read(bundle / BUNDLE_FILE)
    spec.model_copy(update={"cleaner_version": "0-old"}).write(bundle / BUNDLE_FILE)
    with pytest.raises(ArtifactError, match="trained with text cleaner 0-old, installed is 2-"):
        scoring_flow(bundle, tiny_task)


def test_failure_42_labels_in_another_order_are_refused_at_load(
    bundle: Path, tiny_task: TaskConfig
) -> None:
    """FAILURES row 42: a label map in another order gives every score the wrong name."""
    head = tiny_task.heads["queue"]
    swapped = head.model_copy(update={"labels": head.labels[::-1]})
    heads = {**tiny_task.heads, "queue": swapped}
    with pytest.raises(ArtifactError, match="head 'queue': labels of the model"):
        scoring_flow(bundle, tiny_task.model_copy(update={"heads": heads}))


def test_thresholds_come_from_the_task_not_from_the_bundle(
    bundle: Path, tiny_task: TaskConfig
) -> None:
    def decisions(limit: float) -> list[str]:
        heads = {
            name: head.model_copy(update={"review_below": limit})
            for name, head in tiny_task.heads.items()
        }
        flow = scoring_flow(bundle, tiny_task.model_copy(update={"heads": heads}))
        return [scored.decision for scored in flow.score([row(0, "", "late parcel")]).scored]

    assert decisions(0.0) == ["auto"]
    assert decisions(1.0) == ["review"]


def test_texts_are_cleaned_before_there_is_a_tokenizer_but_not_cut(tiny_task: TaskConfig) -> None:
    flow = text_flow(tiny_task, None)
    row = RawRow("a.csv", 0, {"ticket_id": "1", "subject": "", "body": "<mask> [SEP] help"}, b"")
    (prepared,) = flow.prepare([row])
    assert isinstance(prepared, Prepared)
    assert prepared.texts == ("", "mask sep help")
    with pytest.raises(ConfigError, match="without a tokenizer"):
        flow.windows(prepared)


def test_windows_are_pooled_as_the_bundle_says_whatever_the_task(
    bundle: Path, tiny_task: TaskConfig
) -> None:
    spec = BundleSpec.read(bundle / BUNDLE_FILE)
    long = row(0, "refund", " ".join(f"parcel {n} late" for n in range(40)))
    found = {}
    for pooling in ("mean", "max", "first"):
        train = spec.task.train.model_copy(update={"window_pooling": pooling})
        task = spec.task.model_copy(update={"train": train})
        spec.model_copy(update={"task": task}).write(bundle / BUNDLE_FILE)
        (scored,) = scoring_flow(bundle, tiny_task).score([long]).scored
        assert tiny_task.train.window_pooling == "mean"
        found[pooling] = scored
    assert len(found["mean"].spans) == len(found["max"].spans) > 1
    assert len(found["first"].spans) == 1
    assert (found["first"].truncated, found["mean"].truncated) == (True, False)
    scores = {way: each.answers["queue"].scores.tobytes() for way, each in found.items()}
    assert len(set(scores.values())) == 3


def test_training_and_scoring_cut_alike(bundle: Path, tiny_task: TaskConfig) -> None:
    train = tiny_task.train.model_copy(update={"window_pooling": "first"})
    flow = text_flow(
        tiny_task.model_copy(update={"train": train}), BackboneTokenizer(bundle / TOKENIZER_FILE)
    )
    (prepared,) = flow.prepare([row(0, "refund", "parcel late " * 60)])
    assert isinstance(prepared, Prepared)
    assert len(flow.windows(prepared).windows) == 1


def asking(task: TaskConfig) -> TaskConfig:
    queue = task.heads["queue"].model_copy(update={"outside": OutsideConfig()})
    return task.model_copy(update={"heads": {**task.heads, "queue": queue}})


def with_rule(bundle: Path, threshold: float) -> None:
    rule = ScopeRule(method="energy", threshold=threshold, kept=1, rows_inside=9, rows_outside=0)
    spec = BundleSpec.read(bundle / BUNDLE_FILE)
    spec.model_copy(update={"scopes": {"queue": rule}}).write(bundle / BUNDLE_FILE)


def test_the_bundles_rule_sends_texts_to_people_that_no_label_fits(
    bundle: Path, tiny_task: TaskConfig
) -> None:
    rows = [row(0, "refund please", "the card was charged")]
    trusting = {
        name: head.model_copy(update={"review_below": 0.0})
        for name, head in tiny_task.heads.items()
    }
    task = tiny_task.model_copy(update={"heads": trusting})
    (before,) = scoring_flow(bundle, task).score(rows).scored
    assert (before.decision, before.answers["queue"].scope) == ("auto", None)
    for threshold, decision in ((1e3, "review"), (-1e3, "auto")):
        with_rule(bundle, threshold)
        (scored,) = scoring_flow(bundle, asking(task)).score(rows).scored
        queue = scored.answers["queue"]
        assert (scored.decision, queue.outside) == (decision, decision == "review")
        assert queue.scope is not None
        assert -1e3 < queue.scope < 1e3
        assert queue.scores.tobytes() == before.answers["queue"].scores.tobytes()
        (unasked,) = scoring_flow(bundle, task).score(rows).scored
        assert (unasked.decision, unasked.answers["queue"].scope) == ("auto", None)


def test_a_bundle_without_the_rule_that_is_asked_for_says_so(
    bundle: Path, tiny_task: TaskConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = asking(tiny_task)
    one = task.model_copy(update={"score": task.score.model_copy(update={"batching": "one"})})
    calibrate_host(bundle, one, plans=tmp_path)
    assert "no rule for texts that no label of queue fits" in caplog.text
    (scored,) = scoring_flow(bundle, one).score([row(0, "", "late parcel")]).scored
    assert (scored.answers["queue"].scope, scored.answers["queue"].outside) == (None, False)
    caplog.clear()
    with_rule(bundle, 0.0)
    calibrate_host(bundle, one, plans=tmp_path)
    assert "no rule" not in caplog.text
