"""Opinion by aspect from labelled rows to scored ones, with attention over windows."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from pipeline.bundle import load_spec, scoring_flow, text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.heads import head_slices
from pipeline.model.bundling import Source, make_bundle
from pipeline.model.checkpoint import load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.fit import fit
from pipeline.model.labelled import Example, Labeller
from pipeline.model.recipe import Recipe
from pipeline.rows import RawRow
from pipeline.tables import Lineage, scores_table
from schemas.load import parse_task
from schemas.manifest import ModelRef

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

pytestmark = pytest.mark.slow

# One word says what a text thinks of an aspect.
SAID = {"price": {"good": "good", "bad": "refund"}, "service": {"good": "great", "bad": "slow"}}
FILLER = ("order", "parcel", "card", "late", "account", "login", "today")


@pytest.fixture(scope="module")
def task(tiny_task: TaskConfig) -> TaskConfig:
    raw = tiny_task.model_dump(mode="json", exclude={"heads"})
    raw["heads"] = {
        "mood": {
            "kind": "aspect", "column": "mood", "labels": ["good", "bad"],
            "aspects": ["price", "service"], "review_below": 0.0,
        }
    }  # fmt: skip
    raw["window"] = {"max_tokens": 16, "stride_tokens": 4}
    raw["compress"] |= {"prefer": ["fp32"]}
    raw["train"] |= {
        "pooling": "max", "window_pooling": "attention", "class_weights": "balanced",
        "focal_gamma": 1.0, "dropout": 0.0, "layer_decay": 1.0, "max_windows_per_record": 3,
        "patience_epochs": 9,
    }  # fmt: skip
    return parse_task(raw, source="aspects")


def rows(count: int, seed: int) -> list[RawRow]:
    """Texts of one to three windows; what they say of an aspect stands anywhere, or nowhere."""
    chooser = random.Random(seed)
    made = []
    for number in range(count):
        mood = {
            aspect: label
            for aspect, words in SAID.items()
            if (label := chooser.choice([*words, None])) is not None
        }
        words = chooser.choices(FILLER, k=chooser.choice((4, 6, 25)))
        for aspect, label in mood.items():
            words.insert(chooser.randrange(len(words) + 1), SAID[aspect][label])
        values = {"ticket_id": f"t{number}", "subject": "", "body": " ".join(words), "mood": mood}
        made.append(RawRow("f", number, values, b""))
    return made


@pytest.fixture(scope="module")
def bundle(
    task: TaskConfig, tiny_tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    tokenizer = BackboneTokenizer(tiny_tokenizer_path)
    flow = text_flow(task, tokenizer)
    labeller = Labeller(task.heads)
    prepared = [item for item in flow.prepare(rows(400, seed=1)) if isinstance(item, Prepared)]
    examples = [
        Example(
            item.record.record_id, item.text_hash, ("valid", "test", "train", "train")[n % 4],
            "en", item.texts, flow.windows(item).windows, labeller.targets(item),
        )
        for n, item in enumerate(prepared)
    ]  # fmt: skip
    labeller.check()
    heads = head_slices(task.heads)
    model = new_classifier(task.train, heads)
    progress = fit(
        model, train=[e for e in examples if e.split == "train"],
        valid=[e for e in examples if e.split == "valid"], heads=heads, config=task.train,
        recipe=Recipe(10, 5e-3, "a test", batch_size=8, head_learning_rate=1e-2),
    )  # fmt: skip
    assert progress.best_metric > 0.9
    folder = tmp_path_factory.mktemp("run")
    save_checkpoint(model, folder / "checkpoint", tokenizer=tiny_tokenizer_path)
    source = Source(
        "run-1", "d" * 64, flow.cleaner.version, tokenizer.special_tokens, pad_id=tokenizer.pad_id
    )
    make_bundle(
        load_checkpoint(folder / "checkpoint", task.train, heads), examples, task, source,
        checkpoint=folder / "checkpoint", folder=folder / "bundle",
    )  # fmt: skip
    return folder / "bundle"


def test_what_was_learned_is_what_is_scored(bundle: Path, task: TaskConfig) -> None:
    spec = load_spec(bundle)
    spec.check_fits(task)
    metrics = spec.metrics["mood"]
    assert metrics.rows == 100
    assert metrics.macro_f1 > 0.85
    assert metrics.accuracy > metrics.majority_accuracy + 0.3
    fresh = rows(60, seed=2)
    outcome = scoring_flow(bundle, task).score(fresh)
    wanted = [[f"{aspect}:{label}" for aspect, label in row.values["mood"].items()]
              for row in fresh]  # fmt: skip
    assert len(outcome.scored) == 60
    assert sum(len(row.spans) > 1 for row in outcome.scored) > 10
    table = scores_table(
        outcome.scored, task.heads,
        Lineage(dt.date(2026, 11, 28), ModelRef(name="m", version="1", digest="d"), "c", "r"),
    )  # fmt: skip
    right = [set(found) == set(want) for found, want in
             zip(table["mood"].to_pylist(), wanted, strict=True)]  # fmt: skip
    assert sum(right) > 30  # by chance seven
    assert pc.all(pc.equal(pc.list_value_length(table["mood_scores"]), 6)).as_py()


def test_a_record_is_answered_alone_as_among_others(bundle: Path, task: TaskConfig) -> None:
    flow = scoring_flow(bundle, task)
    fresh = rows(12, seed=3)
    together = flow.score(fresh).scored
    for row, among in zip(fresh, together, strict=True):
        (alone,) = flow.score([row]).scored
        assert alone.answers["mood"].scores.tobytes() == among.answers["mood"].scores.tobytes()
        assert alone.answers["mood"].labels == among.answers["mood"].labels
