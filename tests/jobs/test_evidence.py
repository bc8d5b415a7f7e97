"""What is gathered for the person who decides, from what the steps of a run left."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.evidence import gather_evidence
from pipeline.bundle import load_spec
from pipeline.model.comparison import ChampionComparison
from schemas.bundle import (
    MODEL_FILE,
    BundleSpec,
    GateResult,
    LanguageMetrics,
    VariantFacts,
)
from schemas.distilled import Distilled, TeacherRef
from schemas.errors import ArtifactError
from schemas.evidence import LabelChange
from schemas.paired import PairedResult
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home

PAIRED = PairedResult(
    rows=10, accuracy=0.4, accuracy_gain=0.1, accuracy_gain_interval=(0.05, 0.2),
    macro_f1=0.41234567, macro_f1_gain=0.1, macro_f1_gain_interval=(0.01, 0.2), only_new=3,
    only_champion=1, p_value=0.625,
)  # fmt: skip


class FakeRegistry:
    """One champion, whose files may be out of reach."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def fetch(self, uri: str) -> tuple[None, Path]:
        assert uri == "models:/tiny/3"
        if self.folder is None:
            raise ArtifactError(f"{uri} cannot be fetched")
        return None, self.folder


@pytest.fixture
def place(home: Home) -> TrainingRun:
    run = TrainingRun(home, "tiny", "r")
    run.folder.mkdir(parents=True)
    return run


@pytest.fixture
def spec(tiny_bundle: Path) -> BundleSpec:
    """The tiny bundle's, with figures of two languages, gates and a teacher."""
    spec = load_spec(tiny_bundle)
    languages = {
        "de": LanguageMetrics(rows=40, accuracy=0.5, macro_f1=0.4, macro_f1_interval=(0.3, 0.5)),
        "en": LanguageMetrics(rows=50, accuracy=0.5, macro_f1=0.3),
        "fr": LanguageMetrics(rows=2),
    }
    metrics = {name: head.model_copy(update={"by_lang": languages})
               for name, head in spec.metrics.items()}  # fmt: skip
    gates = tuple(
        GateResult(variant=variant, gate=gate, value=0.0, rule="<=", threshold=1.0, passed=passed)
        for variant, gate, passed in (
            ("int8_static", "b", True),
            ("fp32", "a", True),
            ("int8_static", "c", False),
        )
    )
    taught = Distilled(
        teachers=(TeacherRef(address="models:/tiny/2", digest="9" * 64),),
        teacher_valid_macro_f1=0.9,
        student_valid_macro_f1=0.8,
    )
    facts = {"fp32": VariantFacts(megabytes=1.234567, windows_per_s=1234.56)}
    changes: dict[str, Any] = {
        "metrics": metrics, "gates": gates, "facts": facts, "choice": "x" * 900,
        "distilled": taught,
    }  # fmt: skip
    return spec.model_copy(update=changes)


def gather(spec: BundleSpec, place: TrainingRun, registry: Any) -> Any:
    finetuned: Any = SimpleNamespace(rows={"train": 5})
    return gather_evidence(spec, place, finetuned, registry)


def test_a_first_model_stands_alone(spec: BundleSpec, place: TrainingRun) -> None:
    note = "The task has no champion yet."
    ChampionComparison(notes=(note,)).write(place.folder / "comparison.json")
    found = gather(spec, place, FakeRegistry())
    assert (found.champion, found.champion_version, found.notes) == (None, None, (note,))
    assert [head.paired for head in found.heads] == [None, None]
    assert found.new.weights_digest == spec.files[MODEL_FILE]
    assert (found.new.megabytes, found.new.windows_per_s) == (1.235, 1235.0)
    assert found.new.teachers == ("models:/tiny/2 (999999999999)",)
    assert len(found.choice) == 600
    assert found.pages["evaluation"] == str(place.folder / "evaluation.html")
    assert found.rows == {"train": 5}


def test_the_worst_language_and_the_failed_gate_come_first(
    spec: BundleSpec, place: TrainingRun
) -> None:
    found = gather(spec, place, FakeRegistry())
    told = [(part.head, part.lang, part.macro_f1) for part in found.slices]
    assert told == [
        ("queue", "en", 0.3), ("topics", "en", 0.3), ("queue", "de", 0.4), ("topics", "de", 0.4),
    ]  # fmt: skip
    assert [gate.gate for gate in found.gates] == ["c", "a", "b"]


def test_a_champion_is_shown_beside_with_the_labels_that_changed(
    spec: BundleSpec, place: TrainingRun, tiny_bundle: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_bundle, tmp_path / "champion")
    task = spec.task
    queue = task.heads["queue"]
    names = [*queue.score_names]
    others = {**task.heads, "queue": queue.model_copy(update={"labels": (*names[1:], "legal")})}
    champion = load_spec(folder).model_copy(
        update={
            "task": task.model_copy(update={"heads": others}),
            "metrics": spec.metrics,
            "training_run": "before",
        }
    )
    champion.write(folder / "bundle.json")
    compared = ChampionComparison(version="3", heads={"queue": PAIRED})
    compared.write(place.folder / "comparison.json")
    found = gather(spec, place, FakeRegistry(folder))
    assert found.champion is not None
    assert (found.champion.version, found.champion.training_run) == ("3", "before")
    queue_found, topics_found = found.heads
    assert topics_found.paired is None
    assert queue_found.paired is not None
    assert queue_found.paired.macro_f1 == 0.4123
    assert queue_found.paired.verdict == "better"
    assert found.labels == (
        LabelChange(head="queue", added=(names[0],), removed=("legal",), n_added=1, n_removed=1),
    )
    assert found.slices[0].champion_macro_f1 == 0.3


def test_a_champion_out_of_reach_is_named_all_the_same(
    spec: BundleSpec, place: TrainingRun
) -> None:
    note = "Its files cannot be read, so it was not compared; see the log."
    ChampionComparison(version="3", notes=(note,)).write(place.folder / "comparison.json")
    found = gather(spec, place, FakeRegistry())
    assert (found.champion, found.champion_version, found.notes) == (None, "3", (note,))


def test_a_bundle_of_an_older_version_says_that_it_was_not_compared(
    spec: BundleSpec, place: TrainingRun
) -> None:
    (note,) = gather(spec, place, FakeRegistry()).notes
    assert note == "It was bundled by an older version and not compared with the champion."
