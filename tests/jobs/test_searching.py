"""The search of a recipe: what is tried, kept, judged and told, and what becomes of failures."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from mlflow import MlflowClient
from ray import tune

from jobs import search_trials, searching, training
from jobs.search_journal import Failed, Journal, Told
from jobs.search_trials import run_trial
from jobs.searching import search_recipe
from jobs.training import prepare
from pipeline.bundle import load_spec
from pipeline.model.labelled import Example, load_examples, save_examples
from pipeline.model.search_space import draw_trials
from pipeline.window import Window
from schemas.errors import ConfigError, DivergenceError, ShardError
from schemas.fingerprint import digest_of
from schemas.search import SearchConfig
from schemas.searched import Searched
from schemas.task import TaskConfig, TrainConfig
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jobs.search_trials import TrialPlan
    from schemas.home import Home

WORDS = ("invoice", "crash", "parcel")
FINGERPRINT = "0123456789abcdef"
SPLITS = ("train", "train", "train", "valid", "test")
QUIET = dict.fromkeys(("batch_size", "layer_decay", "label_smoothing", "dropout"))


def example(row: int, *, queue: int | None = None) -> Example:
    """A record whose one telling token says its queue."""
    queue = row % 3 if queue is None else queue
    words = [random.Random(row).randint(40, 45) for _ in range(4)]
    ids = (2, *words, 20 + row % 3, 3)
    return Example(
        record_id=f"r{row}", text_hash=f"{row:032x}", split=SPLITS[row // 3 % 5], lang="en",
        texts=("", ""), windows=(Window(ids, (0,) * len(ids), 0, 1),),
        targets={"queue": queue, "topics": None},
    )  # fmt: skip


@pytest.fixture
def place(home: Home) -> TrainingRun:
    """A run's folder with the records that the step `finetune` left there."""
    place = TrainingRun(home, "tiny", "run")
    place.folder.mkdir(parents=True)
    save_examples([example(row) for row in range(90)], place.examples)
    return place


@pytest.fixture
def task(tiny_task: TaskConfig) -> Callable[..., TaskConfig]:
    """The tiny task with a search over the two rates, changed as asked."""

    def make(**changes: Any) -> TaskConfig:
        search = SearchConfig.model_validate({"trials": 4} | QUIET | changes)
        train = TrainConfig(
            backbone=tiny_task.train.backbone, epochs=3, batch_size=9, search=search,
            threads_per_worker=1, near_duplicate_similarity=None,
        )  # fmt: skip
        return tiny_task.model_copy(update={"train": train})

    return make


def search(task: TaskConfig, place: TrainingRun) -> Searched:
    assert task.train.search is not None
    return search_recipe(task, place, search=task.train.search, pad_id=0, fingerprint=FINGERPRINT)


def journal_of(task: TaskConfig, place: TrainingRun) -> Path:
    """Where a search keeps its trials, as long as it is not over."""
    assert task.train.search is not None
    settings = draw_trials(task.train, task.train.search, prepare(task, place.folder).recipe)
    return place.folder / "search" / f"{digest_of([FINGERPRINT, settings])[:16]}.jsonl"


class FakeTrials:
    """Stands for Ray Tune: writes what trials would have told, and answers those that died."""

    def __init__(self, lines: list[Told | Failed], died: dict[int, ShardError]) -> None:
        self.lines, self.died = lines, died
        self.plans: list[TrialPlan] = []

    def __call__(
        self, plan: TrialPlan, settings: Any, *, journal: Path, scratch: Path
    ) -> dict[int, ShardError]:
        self.plans.append(plan)
        kept = Journal(journal)
        for line in self.lines:
            kept.note(line)
        return self.died


@pytest.fixture
def told_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTrials]:
    """Has trials tell these lines, epochs as lists of macro-F1."""

    def tell(*trials: list[float] | str, died: tuple[int, ...] = ()) -> FakeTrials:
        lines: list[Told | Failed] = []
        for number, told in enumerate(trials):
            if isinstance(told, str):
                lines.append(Failed(number, "DivergenceError", told))
            else:
                lines += [Told(number, epoch, f1, 2.0 * epoch) for epoch, f1 in enumerate(told, 1)]
        fake = FakeTrials(lines, {number: ShardError("ActorDiedError") for number in died})
        monkeypatch.setattr(searching, "run_trials", fake)
        return fake

    return tell


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_search_goes_on_stops_the_weak_and_survives_a_trial_that_diverges(
    task: Callable[..., TaskConfig], place: TrainingRun
) -> None:
    asked = task(
        min_epochs=1, concurrent=1, head_learning_rate=None,
        learning_rate={"among": [1e30, 1e-12, 5e-3]},
    )  # fmt: skip
    before = Journal(journal_of(asked, place))
    before.note(Told(0, 1, 0.3, 7.0))  # no such figure comes of training, so it was kept
    found = search(asked, place)
    recipe, good, weak, wild = found.trials
    assert [trial.settings["learning_rate"] for trial in found.trials] == [2e-4, 5e-3, 1e-12, 1e30]
    assert [trial.outcome for trial in found.trials] == [
        "finished", "finished", "stopped", "failed"
    ]  # fmt: skip
    assert recipe.macro_f1[0] == 0.3
    assert [len(trial.macro_f1) for trial in found.trials] == [3, 3, 1, 0]
    assert weak.best < 0.3 < good.best
    assert wild.error is not None
    assert wild.error.startswith("DivergenceError: the training loss became nan")
    assert (found.winner, found.settings) == (1, {"learning_rate": 5e-3})
    assert Searched.read(place.folder / "search.json") == found
    assert {path.name for path in place.folder.iterdir()} == {"examples.parquet", "search.json"}


def test_the_best_wins_and_all_is_told(
    task: Callable[..., TaskConfig],
    place: TrainingRun,
    told_by: Callable[..., FakeTrials],
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = told_by([0.5, 0.7, 0.6], [0.4], "nan at 3", [0.6, 0.8, 0.7])
    with caplog.at_level("INFO"):
        found = search(task(sample_fraction=0.5), place)
    assert [trial.outcome for trial in found.trials] == [
        "finished", "stopped", "failed", "finished"
    ]  # fmt: skip
    assert (found.winner, found.trials[3].seconds, found.sample_fraction) == (3, 6.0, 0.5)
    assert found.why == (
        "trial 3 has the highest validation macro-F1 of 4: 0.8000 after epoch 2; "
        "the recipe's own settings have 0.7000"
    )
    assert found.not_searched == ()
    assert (fake.plans[0].epochs, fake.plans[0].first_rung) == (3, 1)
    assert "trial 2 failed: DivergenceError: nan at 3" in caplog.text
    assert f"recipe by search: {found.why}" in caplog.text
    again = search(task(sample_fraction=0.5), place)
    assert again == found
    assert len(fake.plans) == 1  # what is done is not done again


def test_what_the_task_file_says_is_not_searched(
    tiny_task: TaskConfig, place: TrainingRun, told_by: Callable[..., FakeTrials]
) -> None:
    told_by(*[[0.5]] * 3)
    said = {"learning_rate": 1e-4, "dropout": 0.3, "head_learning_rate": None}
    train = TrainConfig.model_validate(
        {"backbone": tiny_task.train.backbone, "search": {"trials": 3}} | said
    )
    found = search(tiny_task.model_copy(update={"train": train}), place)
    assert found.not_searched == ("learning_rate", "dropout")
    for trial in found.trials:
        assert set(trial.settings) == {
            "head_learning_rate", "batch_size", "layer_decay", "label_smoothing"
        }  # fmt: skip


def test_all_trials_failing_is_told_as_the_first_failed_and_tried_anew(
    task: Callable[..., TaskConfig], place: TrainingRun, told_by: Callable[..., FakeTrials]
) -> None:
    told_by("nan at 1", "nan at 2", "nan at 3", [0.5], died=(3,))
    with pytest.raises(DivergenceError, match="all 4 trials failed, the first: nan at 1"):
        search(task(), place)
    assert not (place.folder / "search").exists()
    told_by([0.5, 0.6, 0.7], [0.8], [0.1], [0.1])
    assert search(task(), place).winner == 1


@pytest.mark.parametrize(
    ("concurrent", "cpus", "expected"),
    [(None, 2, (1, 2)), (None, 20, (2, 10)), (None, 96, (4, 24)), (3, 2, (3, 1))],
)
def test_trials_share_the_cpus(
    concurrent: int | None,
    cpus: int,
    expected: tuple[int, int],
    task: Callable[..., TaskConfig],
    place: TrainingRun,
    told_by: Callable[..., FakeTrials],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NIGHTMILL_CPUS", str(cpus))
    fake = told_by(*[[0.5]] * 4)
    asked = task(concurrent=concurrent)
    train = asked.train.model_copy(update={"threads_per_worker": None})
    search(asked.model_copy(update={"train": train}), place)
    assert (fake.plans[0].concurrent, fake.plans[0].threads) == expected


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a trial in this process tells Ray Tune."""
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(tune, "report", reports.append)
    return reports


def work_for(task: TaskConfig, place: TrainingRun, **changes: Any) -> dict[str, Any]:
    return {
        "task": task.model_dump(mode="json"), "folder": str(place.folder), "pad_id": 0,
        "threads": 1, "epochs": 3, "sample_fraction": 1.0, "trial": 0, "told": [[]],
        "settings": [{"learning_rate": 5e-3}],
    } | changes  # fmt: skip


def scores(reported: list[dict[str, Any]]) -> list[float]:
    assert [report["epoch"] for report in reported] == list(range(1, len(reported) + 1))
    return [report["valid_macro_f1"] for report in reported]


def test_a_trial_never_looks_at_the_test_records(
    task: Callable[..., TaskConfig], place: TrainingRun, reported: list[dict[str, Any]]
) -> None:
    run_trial(work_for(task(), place))
    before = scores(reported)
    assert len(before) == 3
    reported.clear()
    # Test records with other words and labels, and then none of them, change nothing.
    wrong = [
        replace(example(row + 1, queue=row % 2), split="test") if found.split == "test" else found
        for row, found in enumerate(load_examples(place.examples))
    ]
    save_examples(wrong, place.examples)
    run_trial(work_for(task(), place))
    assert scores(reported) == before
    reported.clear()
    save_examples([found for found in wrong if found.split != "test"], place.examples)
    run_trial(work_for(task(), place))
    assert scores(reported) == before


def test_a_trial_that_is_known_in_part_tells_it_again_and_does_the_rest(
    task: Callable[..., TaskConfig], place: TrainingRun, reported: list[dict[str, Any]]
) -> None:
    run_trial(work_for(task(), place))
    whole = scores(reported)
    reported.clear()
    run_trial(work_for(task(), place, told=[[(0.1, 5.0)]]))
    assert scores(reported) == [0.1, *whole[1:]]
    assert reported[0]["seconds"] == 5.0
    reported.clear()
    over = [(0.1, 1.0), (0.2, 2.0), (0.3, 3.0)]
    run_trial(work_for(task(), place, told=[over], folder="no such folder"))
    assert scores(reported) == [0.1, 0.2, 0.3]


def test_a_share_of_the_training_records_gives_another_trial(
    task: Callable[..., TaskConfig], place: TrainingRun, reported: list[dict[str, Any]]
) -> None:
    sizes = []
    original = search_trials.learn

    def learn(parts: Any, *arguments: Any, **named: Any) -> Any:
        sizes.append((len(parts.train), len(parts.valid)))
        return original(parts, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_trials, "learn", learn)
        run_trial(work_for(task(), place, sample_fraction=0.5))
    assert sizes == [(27, 18)]


def test_an_error_in_a_trial_is_its_last_report(
    task: Callable[..., TaskConfig], place: TrainingRun, reported: list[dict[str, Any]]
) -> None:
    run_trial(work_for(task(), place, settings=[{"learning_rate": 1e30}]))
    assert reported[-1]["error"]["kind"] == "DivergenceError"
    assert reported[-1]["error"]["message"].startswith("the training loss became nan")
    assert math.isnan(reported[-1]["valid_macro_f1"])


def test_a_journal_drops_what_a_kill_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "search/a.jsonl"
    journal = Journal(path)
    assert journal.note(Told(1, 1, 0.5, 2.0))
    assert not journal.note(Told(1, 1, 0.9, 2.0))
    assert journal.note(Failed(2, "ConfigError", "no such thing"))
    assert not journal.note(Failed(2, "ConfigError", "told again"))
    with path.open("a") as file:
        file.write('{"trial": 1, "epo')
    again = Journal(path)
    assert again.epochs_of(1) == [Told(1, 1, 0.5, 2.0)]
    assert again.epochs_of(0) == []
    assert isinstance(again.failed[2].error, ConfigError)
    assert str(again.failed[2].error) == "no such thing"
    assert again.note(Told(1, 2, 0.6, 4.0))
    assert [told.macro_f1 for told in Journal(path).epochs_of(1)] == [0.5, 0.6]


@pytest.fixture
def labelled_home(home: Home, tiny_task: TaskConfig) -> Home:
    """A home with the task `tiny`, whose file leaves the rates open, and labelled rows."""
    home.tasks.mkdir()
    raw = tiny_task.model_dump(mode="json")
    raw["train"] = {
        "backbone": tiny_task.train.backbone, "epochs": 3, "batch_size": 8, "threads_per_worker": 1,
    }  # fmt: skip
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    folder = home.root / "labelled/tiny"
    folder.mkdir(parents=True)
    rows = [
        {"ticket_id": f"t{row}", "subject": "the", "body": f"{WORDS[row % 3]} {row}",
         "queue": tiny_task.heads["queue"].labels[row % 3], "topics": []}
        for row in range(60)
    ]  # fmt: skip
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_the_run_trains_with_the_winner_and_says_so(
    labelled_home: Home,
    nightmill: Callable[..., Any],
    told_by: Callable[..., FakeTrials],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_by([0.5, 0.6, 0.6], [0.5, 0.7, 0.9], [0.1])
    trained: list[TaskConfig] = []
    original = training.run_training

    def train(config: TaskConfig, place: TrainingRun, **named: Any) -> None:
        trained.append(config)
        original(config, place, **named)

    monkeypatch.setattr(training, "run_training", train)
    outcome = nightmill(
        "finetune", "tiny", "--run", "r", "train.search.trials=3", home=labelled_home
    )
    assert outcome.exit_code == 0, outcome.stderr
    assert "not searched, as the task file says them: batch_size" in outcome.stderr
    place = TrainingRun(labelled_home, "tiny", "r")
    done, found = place.finetuned(), Searched.read(place.folder / "search.json")
    assert found.winner == 1
    assert done.searched == found.settings == found.trials[1].settings
    assert set(done.searched) == {
        "learning_rate", "head_learning_rate", "layer_decay", "label_smoothing", "dropout"
    }  # fmt: skip
    for key, value in done.searched.items():
        assert getattr(trained[0].train, key) == value
    assert trained[0].train.batch_size == 8
    assert TaskConfig.model_validate_json(place.settings.read_bytes()) == trained[0]
    client = MlflowClient(labelled_home.tracking_uri)
    run = client.get_run(done.mlflow_run_id)
    for key, value in done.searched.items():
        assert run.data.params[f"train.{key}"] == str(value)
    assert run.data.params["train.batch_size"] == "8"
    assert run.data.tags["search"] == found.why
    assert run.data.metrics["search.valid_macro_f1"] == 0.1  # of the last trial
    (file,) = client.list_artifacts(done.mlflow_run_id, "search")
    assert file.path == "search/search.json"

    bundled = nightmill("bundle", "tiny", "--run", "r", "train.search.trials=3", home=labelled_home)
    assert bundled.exit_code == 0, bundled.stderr
    assert load_spec(place.bundle).task.train == trained[0].train
