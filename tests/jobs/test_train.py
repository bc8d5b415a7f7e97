"""The way from labelled rows to a registered model, by command line; and its workers' wiring."""

from __future__ import annotations

import json
import random
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from mlflow import MlflowClient

from jobs import training
from jobs.pace import Pace
from jobs.ray_training import last_state
from pipeline.engines.registry import Registry
from pipeline.model.findings import Diagnosis
from pipeline.model.fit import Progress
from pipeline.model.label_errors import load_suspects
from schemas.errors import DivergenceError
from schemas.evidence import Evidence
from schemas.load import load_task
from schemas.training import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from schemas.home import Home

    Run = Callable[..., Result]

KEYWORDS = {"billing": "invoice", "technical": "crash", "shipping": "parcel"}
FILLER = ["the", "a", "my", "i", "it", "is", "was", "not", "please", "help", "today", "again"]


def write_labelled(home: Home, *, rows: int = 240, **changes: Any) -> None:
    """Labelled rows whose words decide the labels; `changes` go into the first row."""
    chooser = random.Random(3)
    records = []
    for number in range(rows):
        queue = list(KEYWORDS)[number % 3]
        topics = [topic for topic in ("price", "quality") if chooser.random() < 0.5]
        words = [*chooser.choices(FILLER, k=5), KEYWORDS[queue], *topics]
        chooser.shuffle(words)
        records.append(
            {"ticket_id": f"t{number}", "subject": " ".join(words[:3]),
             "body": " ".join([*words[3:], str(number)]), "queue": queue, "topics": topics}
        )  # fmt: skip
    records[0] |= changes
    path = home.root / "labelled/tiny/rows.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_first_version_is_champion_the_next_is_challenger_the_same_is_not_trained_again(
    train_home: Home, nightmill: Run, tmp_path: Path, steps_of: Any, lineage_events: Any
) -> None:
    write_labelled(train_home)
    result = tmp_path / "result.json"
    first = nightmill(
        "train", "tiny", "--reason", "a first one", "--result", str(result), home=train_home
    )
    assert first.exit_code == 0, first.stderr
    told = json.loads(result.read_text())
    assert (told["name"], told["version"], told["champion"]) == ("tiny", "1", "1")
    assert told["variant"] == "fp32"
    assert set(told["metrics"]) == {"queue", "topics"}
    assert {gate["gate"] for gate in told["gates"]} >= {"parity", "finite_outputs"}
    assert all(gate["passed"] for gate in told["gates"])
    check_what_was_logged(train_home, told["run"])
    check_the_tree(train_home, told, steps_of)
    check_the_lineage(train_home, told, lineage_events())
    assert r"gates, as measured on this host:\nvariant  gate " in first.stderr

    result.unlink()
    again = nightmill("train", "tiny", "--result", str(result), home=train_home)
    assert again.exit_code == 0, again.stderr
    assert "is already fine-tuned with this data and these settings" in again.stderr
    assert json.loads(result.read_text()) == told

    other = nightmill("train", "tiny", "--result", str(result), "train.seed=14", home=train_home)
    assert other.exit_code == 0, other.stderr
    second = json.loads(result.read_text())
    assert (second["version"], second["champion"]) == ("2", "1")
    assert second["digest"] != told["digest"]
    assert second["run"] != told["run"]
    page = (TrainingRun(train_home, "tiny", second["run"]).folder / "evaluation.html").read_text()
    assert "champion, version 1" in page
    assert "it has learnt from some of these" in page  # its seed was another
    check_the_evidence(train_home, second["run"], nightmill, result)
    registry = Registry(train_home)
    assert registry.fetch("models:/tiny@challenger")[0].version == "2"
    assert registry.fetch("models:/tiny@champion")[0].digest == told["digest"]

    assert nightmill("promote", "tiny", "--approver", "test", home=train_home).exit_code == 0
    assert registry.champion("tiny") == "2"
    assert registry.fetch("models:/tiny@previous")[0].version == "1"

    wrong = nightmill("finetune", "tiny", "--run", told["run"], "train.epochs=3", home=train_home)
    assert wrong.exit_code == 4
    assert "exists with other data or settings; choose another --run" in wrong.stderr


def test_a_run_that_diverges_is_marked_and_says_why(
    train_home: Home, nightmill: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_labelled(train_home)
    told = "the training loss became nan at learning rate 5"

    def diverge(*_: Any, **__: Any) -> None:
        raise DivergenceError(told)

    monkeypatch.setattr(training, "run_training", diverge)
    result = nightmill("finetune", "tiny", "--run", "wild", home=train_home)
    assert result.exit_code == 3, result.stderr
    client = MlflowClient(train_home.tracking_uri)
    experiment = client.get_experiment_by_name("nightmill-tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.tags["diagnosis"] == "loss_not_finite"
    assert run.info.status == "FAILED"
    found = Diagnosis.read(TrainingRun(train_home, "tiny", "wild").folder / "diagnosis.json")
    assert found.findings[0].evidence == told
    assert "a tenth of train.learning_rate" in found.findings[0].advice


def check_what_was_logged(home: Home, run: str) -> None:
    """The run's page in MLflow tells of the data behind it, and of its languages."""
    finetuned = TrainingRun(home, "tiny", run).finetuned()
    client = MlflowClient(home.tracking_uri)
    metrics = client.get_run(finetuned.mlflow_run_id).data.metrics
    for split, rows in finetuned.rows.items():
        assert metrics[f"data.rows.{split}"] == rows
    for pair in ("train-test", "train-valid", "valid-test"):
        assert metrics[f"data.near_duplicates.{pair}"] == finetuned.near_duplicates[pair]
    assert metrics["data.conflicting_labels.queue"] == finetuned.conflicting_labels["queue"]
    by_lang = [n for name, n in metrics.items() if re.fullmatch(r"test\.queue\.\w+\.rows", name)]
    assert sum(by_lang) == finetuned.rows["test"]
    for figure in ("accuracy", "macro_f1"):
        assert 0 <= metrics[f"baseline.queue.majority.{figure}"] < 0.6
        assert metrics[f"baseline.queue.tfidf_linear.{figure}"] > 0.9
    tags = client.get_run(finetuned.mlflow_run_id).data.tags
    place = TrainingRun(home, "tiny", run)
    assert tags["diagnosis"] == Diagnosis.read(place.folder / "diagnosis.json").tag
    assert load_suspects(place.folder / "label_errors.parquet") == ()
    assert "epochs in batches of" in tags["recipe"]
    pages = client.list_artifacts(finetuned.mlflow_run_id, "evaluation")
    assert [page.path.rpartition("/")[2] for page in pages] == [
        "evaluation.html", "evidence.json", "model.html",
    ]  # fmt: skip
    assert "The task has no champion yet." in (place.folder / "evaluation.html").read_text()
    files = client.list_artifacts(finetuned.mlflow_run_id, "text_profile")
    assert {file.path for file in files} == {"text_profile/profile.json", "text_profile/text.html"}


def check_the_tree(home: Home, told: dict[str, Any], steps_of: Any) -> None:
    """Each step has its own settings and digests below the run."""
    finetuned = TrainingRun(home, "tiny", told["run"]).finetuned()
    parent = MlflowClient(home.tracking_uri).get_run(finetuned.mlflow_run_id)
    assert parent.data.tags["nightmill.reason"] == "a first one"
    steps = steps_of(home, finetuned.mlflow_run_id)
    assert set(steps) == {"finetune", "bundle", "register"}
    assert {run.info.status for run in steps.values()} == {"FINISHED"}
    (used,) = steps["finetune"].inputs.dataset_inputs
    assert used.dataset.name == "labelled/tiny/rows.jsonl"
    assert used.tags[0].value == "training"
    assert steps["finetune"].data.params["train.epochs"] == "2"
    assert steps["finetune"].data.tags["data_digest"] == finetuned.data_digest
    assert steps["finetune"].data.tags["nightmill.code"] == parent.data.tags["nightmill.code"]
    assert steps["bundle"].data.tags["digest"] == told["digest"]
    assert steps["bundle"].data.params["compress.prefer"] == "['fp32']"
    assert not any(name.startswith("train.") for name in steps["bundle"].data.params)
    assert steps["register"].data.tags["version"] == told["version"]


def check_the_lineage(home: Home, told: dict[str, Any], events: list[dict[str, Any]]) -> None:
    """From labelled files to a version, each step begins with what the one before has made."""
    names = [(event["job"]["name"], event["eventType"]) for event in events]
    steps = [f"tiny.{step}" for step in ("finetune", "bundle", "register")]
    assert names == [(step, kind) for step in steps for kind in ("START", "COMPLETE")]
    learnt, made, registered = events[1::2]
    (labelled,) = learnt["inputs"]
    assert labelled["name"] == str(home.root / "labelled/tiny")
    assert labelled["inputFacets"]["inputStatistics"]["rowCount"] == 240
    for before, after in ((learnt, made), (made, registered)):
        output = (before["outputs"][0]["namespace"], before["outputs"][0]["name"])
        assert output in [(each["namespace"], each["name"]) for each in after["inputs"]]
    (version,) = registered["outputs"]
    assert (version["namespace"], version["name"]) == ("mlflow", "tiny/1")
    assert version["facets"]["version"]["datasetVersion"] == told["digest"]


def check_the_evidence(home: Home, run: str, nightmill: Run, result: Path) -> None:
    """What `bundle` answers to whoever decides: both models on the same records."""
    result.unlink()
    again = nightmill(
        "bundle", "tiny", "--run", run, "--result", str(result), "train.seed=14", home=home
    )
    assert "already has its bundle" in again.stderr
    found = Evidence.model_validate(json.loads(result.read_text())["evidence"])
    assert found == Evidence.read(TrainingRun(home, "tiny", run).folder / "evidence.json")
    assert (found.champion_version, found.new.training_run) == ("1", run)
    assert found.champion is not None
    assert found.champion.digest != found.new.digest
    assert found.champion.windows_per_s is not None
    assert {head.head for head in found.heads} == {"queue", "topics"}
    assert all(head.paired is not None for head in found.heads)
    assert any("it has learnt from some of these" in note for note in found.notes)
    assert found.rows == TrainingRun(home, "tiny", run).finetuned().rows
    assert found.left_out == {}


def epochs_of(folder: Path) -> list[int]:
    path = folder / "epochs.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    told = [json.loads(line) for line in lines]
    return [int(line["epoch"]) for line in told if "epoch" in line]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_worker_goes_on_from_its_last_epoch_and_ends_as_if_undisturbed(
    train_home: Home, nightmill: Run, killing_a_worker: Any
) -> None:
    write_labelled(train_home)
    folder = train_home.models("tiny") / "trial"
    settings = ["train.epochs=15", "train.patience_epochs=15", "train.learning_rate=1e-4"]
    with killing_a_worker(folder, reports=random.Random(7).randrange(2, 12)) as killed:
        outcome = nightmill("finetune", "tiny", "--run", "trial", *settings, home=train_home)
    assert outcome.exit_code == 0, outcome.stderr
    assert len(killed) == 1
    seen = epochs_of(folder)
    assert set(seen) == set(range(1, 16))
    assert len(seen) <= 17  # from the start it would be at least 18
    history = json.loads((folder / "progress.json").read_text())["history"]
    assert [row["epoch"] for row in history] == list(range(1, 16))
    check_it_ended_as_if_undisturbed(train_home, settings, history)


def check_it_ended_as_if_undisturbed(
    home: Home, settings: list[str], history: list[dict[str, float]]
) -> None:
    """The same work in this process, without a worker and without its death."""
    place, task = TrainingRun(home, "tiny", "trial"), load_task("tiny", home, overrides=settings)
    torch.set_num_threads(task.train.threads_per_worker or 1)
    calm = training.learn(
        training.prepare(task, place.folder), task, place.folder,
        pad_id=place.finetuned().pad_id, on_epoch=lambda *_: None,
    ).history  # fmt: skip
    told = [row["valid_macro_f1"] for row in history]
    assert told == [row["valid_macro_f1"] for row in calm]
    for name in ("train_loss", "valid_loss"):
        expected = [row[name] for row in calm]
        assert [row[name] for row in history] == pytest.approx(expected, rel=1e-6), name


def test_an_unknown_label_is_named(train_home: Home, nightmill: Run) -> None:
    write_labelled(train_home, queue="biling")
    outcome = nightmill("train", "tiny", home=train_home)
    assert outcome.exit_code == 3
    assert "unknown label 'biling' (did you mean 'billing'?) in 1 records (for example t0)" in (
        outcome.stderr
    )


def test_rows_without_a_text_column_are_a_contract_error(train_home: Home, nightmill: Run) -> None:
    folder = train_home.root / "labelled/tiny"
    folder.mkdir(parents=True)
    (folder / "rows.csv").write_text("ticket_id,title,queue\n1,hello,billing\n")
    outcome = nightmill("train", "tiny", "data.labelled=labelled/tiny/*.csv", home=train_home)
    assert outcome.exit_code == 3
    assert "subject" in outcome.stderr


def test_rows_without_any_label_are_a_contract_error(train_home: Home, nightmill: Run) -> None:
    write_labelled(train_home)
    overrides = ["heads.queue.column=quue", "heads.topics.column=tpics"]
    outcome = nightmill("train", "tiny", *overrides, home=train_home)
    assert outcome.exit_code == 3
    assert "['quue', 'tpics']" in outcome.stderr


def test_a_misspelt_setting_is_a_config_error(train_home: Home, nightmill: Run) -> None:
    outcome = nightmill("train", "tiny", "train.epoch=2", home=train_home)
    assert outcome.exit_code == 2
    assert "unknown key 'train.epoch' (did you mean 'epochs'?)" in outcome.stderr


def test_no_labelled_data_is_told_before_anything_starts(train_home: Home, nightmill: Run) -> None:
    outcome = nightmill("train", "tiny", "data.labelled=null", home=train_home)
    assert outcome.exit_code == 2
    assert "names no labelled data; set data.labelled" in outcome.stderr
    missing = nightmill("train", "tiny", home=train_home)
    assert missing.exit_code == 3


def test_a_backbone_that_is_not_there(train_home: Home, nightmill: Run) -> None:
    write_labelled(train_home)
    outcome = nightmill("train", "tiny", "train.backbone=path:/no/such", home=train_home)
    assert outcome.exit_code == 4
    assert "no config.json in /no/such" in outcome.stderr


def test_dry_run_prints_the_settings_and_does_nothing(train_home: Home, nightmill: Run) -> None:
    outcome = nightmill("train", "tiny", "--dry-run", "train.epochs=7", home=train_home)
    assert outcome.exit_code == 0
    assert yaml.safe_load(outcome.stdout)["train"]["epochs"] == 7
    assert sorted(path.name for path in train_home.root.iterdir()) == ["tasks"]


@pytest.mark.parametrize("step", ["bundle", "register"])
def test_later_steps_want_a_run(step: str, train_home: Home, nightmill: Run) -> None:
    assert nightmill(step, "tiny", home=train_home).exit_code == 2
    outcome = nightmill(step, "tiny", "--run", "none", home=train_home)
    assert outcome.exit_code == 4
    assert "'none' is not fine-tuned; run `nightmill finetune` first" in outcome.stderr


def test_an_epoch_is_reported_and_found_again(tmp_path: Path, fake_train: Any) -> None:
    assert last_state() is None
    progress = Progress(epoch=2, step=9, history=[{"epoch": 2.0, "train_loss": 0.5}])
    state = {"model": {"w": torch.arange(3)}, "progress": progress.__dict__}
    pace = Pace(tmp_path)
    training._report(tmp_path, pace, progress, state, True)
    expected = {"epoch": 2.0, "train_loss": 0.5, "is_best": True, "left_s": 0.0}
    assert fake_train.metrics == [expected]
    assert epochs_of(tmp_path) == [2]
    found = last_state()
    assert found is not None
    assert found["progress"] == progress.__dict__
    assert torch.equal(found["model"]["w"], torch.arange(3))
    fake_train.rank = 1
    shutil.rmtree(tmp_path / "kept")
    training._report(tmp_path, pace, progress, state, False)
    assert epochs_of(tmp_path) == [2]
    assert len(fake_train.metrics) == 2  # every rank reports, only the first leaves a checkpoint
    assert last_state() is None


def test_a_worker_leaves_our_own_error_for_the_driver(
    train_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_train: Any
) -> None:
    monkeypatch.setattr(training, "load_examples", lambda _: [])
    task = load_task("tiny", train_home)
    work = {
        "task": task.model_dump(mode="json"),
        "folder": str(tmp_path),
        "threads": 1,
        "pad_id": 0,
    }
    training._worker(work)
    told = json.loads((tmp_path / "failure.json").read_text())
    assert told["kind"] == "DataContractError"
    assert told["message"].startswith("0 training and 0 validation records: need both")
    longer = task.model_copy(update={"window": task.window.model_copy(update={"max_tokens": 600})})
    training._worker(work | {"task": longer.model_dump(mode="json")})
    told = json.loads((tmp_path / "failure.json").read_text())
    assert told["kind"] == "ConfigError"
    assert told["message"].startswith("window.max_tokens 600 is more than the backbone reads")
