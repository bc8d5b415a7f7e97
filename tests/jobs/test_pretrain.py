"""From unlabelled texts to a backbone that can be fine-tuned, by command line."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from mlflow import MlflowClient

from jobs import pretrain, pretraining
from jobs.pace import Pace
from jobs.ray_training import last_state
from pipeline.model.backbone import load_encoder
from pipeline.model.pretrain.loop import Progress
from schemas.errors import ShardError
from schemas.load import load_task
from schemas.pretraining import Prepared, Pretrained, PretrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from schemas.home import Home
    from schemas.task import TaskConfig

    Run = Callable[..., Result]

WHO = ("i", "the invoice", "my card", "the app", "my parcel", "the router")
DOES = ("is", "was", "is not", "was not", "is never")
WHAT = ("late", "broken", "good", "fast", "on time", "slow", "great")


def write_texts(home: Home, *, rows: int = 200) -> None:
    """Distinct short texts with a grammar, over two dates, as CSV."""
    texts = [f"{who} {does} {what}" for who in WHO for does in DOES for what in WHAT]
    random.Random(3).shuffle(texts)
    for day, some in {"27": texts[: rows // 2], "28": texts[rows // 2 : rows]}.items():
        path = home.root / f"incoming/tiny/date=2026-11-{day}/rows.csv"
        path.parent.mkdir(parents=True)
        lines = [f"t{number},,{text}" for number, text in enumerate(some)]
        path.write_text("\n".join(["ticket_id,subject,body", *lines]) + "\n")


@pytest.fixture
def texts_home(home: Home, tiny_task: TaskConfig) -> Home:
    """A home whose task `tiny` has unlabelled texts and quick pretraining."""
    home.tasks.mkdir()
    raw = tiny_task.model_dump(mode="json")
    raw["data"]["incoming"] = "incoming/tiny/date={date}/*.csv"
    raw["pretrain"] |= {
        "learning_rate": 5e-3, "epochs": 4, "batch_size": 8, "packed": False, "head_steps": 20,
        "threads_per_worker": 1, "valid_fraction": 0.2,
    }  # fmt: skip
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    return home


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_held_out_words_are_guessed_better_and_the_result_is_a_backbone(
    texts_home: Home, nightmill: Run, tmp_path: Path
) -> None:
    write_texts(texts_home)
    result = tmp_path / "result.json"
    arguments = ("pretrain", "tiny", "--result", str(result), "pretrain.new_tokens=3")
    first = nightmill(*arguments, home=texts_home)
    assert first.exit_code == 0, first.stderr
    told = json.loads(result.read_text())
    name = "perplexity_per_word"
    assert told["after"][name] < 0.9 * told["before"][name]
    assert told["new_tokens"] == 3
    assert told["pieces_per_word"][1] < told["pieces_per_word"][0]
    assert told["texts"]["train"] + told["texts"]["valid"] == 200
    assert f"train.backbone={told['address']}" in first.stdout
    assert "held-out perplexity_per_word" in first.stderr
    assert "the backbone came without its head" in first.stderr

    folder = texts_home.root / "pretrained/tiny" / told["run"] / "model"
    assert told["address"] == f"path:{folder}"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}
    task = load_task("tiny", texts_home, overrides=[f"train.backbone={told['address']}"])
    encoder = load_encoder(task.train.backbone, dropout=0.1)
    ids = torch.tensor([[2, 5, 6, 3]])
    hidden = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    assert hidden.shape == (1, 4, 32)
    check_what_was_logged(texts_home, told)

    result.unlink()
    again = nightmill(*arguments, home=texts_home)
    assert again.exit_code == 0, again.stderr
    assert "is already pretrained with this data and these settings" in again.stderr
    assert json.loads(result.read_text()) == told

    wrong = nightmill("pretrain", "tiny", "--run", told["run"], home=texts_home)
    assert wrong.exit_code == 4
    assert "exists with other data or settings; choose another --run" in wrong.stderr


def check_what_was_logged(home: Home, told: dict[str, Any]) -> None:
    """The run's page in MLflow has settings, data, and the measures before, by epoch and after."""
    client = MlflowClient(home.tracking_uri)
    run = client.get_run(told["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["pretrain.new_tokens"] == "3"
    assert run.data.metrics["before.loss"] == pytest.approx(told["before"]["loss"])
    assert run.data.metrics["after.loss"] == pytest.approx(told["after"]["loss"])
    history = client.get_metric_history(told["mlflow_run_id"], "valid_loss")
    assert [point.step for point in history] == [1, 2, 3, 4]
    assert min(point.value for point in history) == pytest.approx(told["after"]["loss"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_workers_one_of_them_killed_go_on_from_the_last_checkpoint(
    texts_home: Home, nightmill: Run, killing_a_worker: Any
) -> None:
    write_texts(texts_home)
    folder = texts_home.root / "pretrained/tiny/trial"
    settings = ["epochs=20", "checkpoint_steps=8", "workers=2", "learning_rate=1e-3"]
    overrides = [f"pretrain.{setting}" for setting in settings]
    with killing_a_worker(folder, reports=6) as killed:
        outcome = nightmill("pretrain", "tiny", "--run", "trial", *overrides, home=texts_home)
    assert outcome.exit_code == 0, outcome.stderr
    assert len(killed) == 1
    progress = json.loads((folder / pretraining.PROGRESS_FILE).read_text())
    assert [row["epoch"] for row in progress["history"]] == list(range(1, 21))
    done = Pretrained.read(folder / "pretrain.json")
    assert done.after["loss"] < done.prepared.before["loss"]


def test_a_misspelt_setting_and_one_that_does_not_suit_are_config_errors(
    texts_home: Home, nightmill: Run
) -> None:
    outcome = nightmill("pretrain", "tiny", "pretrain.epoch=2", home=texts_home)
    assert outcome.exit_code == 2
    assert "unknown key 'pretrain.epoch' (did you mean 'epochs'?)" in outcome.stderr
    outcome = nightmill("pretrain", "tiny", "pretrain.train_tokenizer={}", home=texts_home)
    assert outcome.exit_code == 2
    assert "train_tokenizer needs from_scratch" in outcome.stderr


def test_no_texts_are_a_contract_error(texts_home: Home, nightmill: Run) -> None:
    outcome = nightmill("pretrain", "tiny", home=texts_home)
    assert outcome.exit_code == 3
    assert "nothing matches" in outcome.stderr


def test_dry_run_prints_the_settings_and_does_nothing(texts_home: Home, nightmill: Run) -> None:
    outcome = nightmill("pretrain", "tiny", "--dry-run", "pretrain.epochs=7", home=texts_home)
    assert outcome.exit_code == 0
    assert yaml.safe_load(outcome.stdout)["pretrain"]["epochs"] == 7
    assert sorted(path.name for path in texts_home.root.iterdir()) == ["tasks"]


def test_a_checkpoint_is_reported_and_found_again(tmp_path: Path, fake_train: Any) -> None:
    assert last_state() is None
    pace = Pace(tmp_path)
    inside = Progress(epoch=1, step=9, batch=2, history=[{"epoch": 1}])
    pretraining._report(tmp_path, pace, inside, {"step": 9})
    ended = Progress(epoch=2, step=14, history=[{"epoch": 1}, {"epoch": 2, "valid_loss": 2.25}])
    pretraining._report(tmp_path, pace, ended, {"step": 14})
    assert fake_train.metrics == [
        {"saved_at": 9}, {"epoch": 2, "valid_loss": 2.25, "left_s": 0.0},
    ]  # fmt: skip
    assert [pretraining.describe(told) for told in fake_train.metrics] == [
        "a killed run would go on from step 9", "epoch 2: valid loss 2.25",
    ]  # fmt: skip
    assert last_state() == {"step": 14}
    fake_train.rank = 1
    pretraining._report(tmp_path, pace, ended, {"step": 99})
    lines = (tmp_path / "epochs.jsonl").read_text().splitlines()
    assert len(lines) == 2  # every rank reports, only the first leaves a checkpoint
    assert last_state() == {"step": 14}


def test_pretraining_says_how_long_the_rest_may_take() -> None:
    step = {"in_epoch": 2, "step": 30, "steps": 90, "loss": 3.5, "left_s": 240.0}
    assert pretraining.describe(step) == "epoch 2: step 30 of 90, loss 3.5000, 4 min left"
    epoch = {"epoch": 1, "train_loss": 4.0, "valid_perplexity": 20.5, "left_s": 130.0}
    assert pretraining.describe(epoch) == (
        "epoch 1: train loss 4, valid perplexity 20.5, at most 2 min left"
    )


def test_a_worker_leaves_our_own_error_for_the_driver(texts_home: Home, fake_train: Any) -> None:
    place = PretrainingRun(texts_home, "tiny", "trial")
    place.folder.mkdir(parents=True)
    work = {
        "task": load_task("tiny", texts_home).model_dump(mode="json"),
        "home": str(texts_home.root),
        "run": "trial",
        "threads": 1,
    }
    pretraining._worker(work)
    told = json.loads((place.folder / "failure.json").read_text())
    assert told["kind"] == "ArtifactError"
    assert "is not a tokenizer.json" in told["message"]


class FakeRegistry:
    """MLflow that forgets everything."""

    def __init__(self, home: Home) -> None:
        del home

    def start_run(self, *names: str, params: dict[str, Any]) -> str:
        del names, params
        return "run-id"

    def __getattr__(self, name: str) -> Any:
        return lambda *values, **named: None


def test_what_a_killed_run_had_prepared_is_not_made_again(
    texts_home: Home, nightmill: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(texts_home, rows=60)
    monkeypatch.setattr(pretrain, "Registry", FakeRegistry)

    def dies(*values: Any) -> dict[str, Any]:
        raise ShardError("workers failed more than 2 times; run again to go on")

    monkeypatch.setattr(pretrain, "_train", dies)
    assert nightmill("pretrain", "tiny", "--run", "trial", home=texts_home).exit_code == 5
    place = PretrainingRun(texts_home, "tiny", "trial")
    start = place.start / "model.safetensors"
    made_at = start.stat().st_mtime_ns

    def ends(*values: Any) -> dict[str, Any]:
        assert start.stat().st_mtime_ns == made_at
        before = Prepared.read(place.prepared).before
        after = {f"valid_{name}": value + 1 for name, value in before.items()}
        return {"history": [{"epoch": 1, "train_loss": 3.0, **after}], "best_epoch": 1}

    monkeypatch.setattr(pretrain, "_train", ends)
    result = tmp_path / "result.json"
    # Settings that make no difference to the outcome do not begin anew either.
    again = nightmill(
        "pretrain", "tiny", "--run", "trial", "--result", str(result), "pretrain.max_failures=5",
        home=texts_home,
    )  # fmt: skip
    assert again.exit_code == 0, again.stderr
    assert "run trial goes on" in again.stderr
    assert "the held-out loss did not fall; try a lower pretrain.learning_rate" in again.stderr
    told = json.loads(result.read_text())
    assert told["before"] == Prepared.read(place.prepared).before
    assert told["after"] == {name: value + 1 for name, value in told["before"].items()}
    assert not start.exists()
    assert not place.train.exists()


@pytest.mark.parametrize(
    ("name", "unknown", "lines"),
    [
        ("perplexity", (0.01, 0.002), 1),
        ("perplexity", (0.64, 0.02), 2),
        ("loss", (0.64, 0.02), 1),  # SimCSE asks for no words
    ],
)
def test_measures_of_other_words_are_said_not_to_compare(
    name: str, unknown: tuple[float, float], lines: int
) -> None:
    done = Pretrained(
        run="r", fingerprint="f", address="path:a", mlflow_run_id="m", data_digest="d",
        texts={"train": 2}, rejected={}, after={name: 162.7}, best_epoch=1,
        prepared=Prepared(before={name: 151.2}, pieces_per_word=(1.0, 1.0),
                          unknown_words=unknown, sequences=1, tokens=9),
        seconds=0.5,
    )  # fmt: skip
    told = pretrain.before_and_after(done)
    assert told[0] == f"held-out {name}: 151.2 before, 162.7 after"
    assert len(told) == lines
    if lines > 1:
        assert told[1].startswith("these do not compare: before, 64% of the words were unknown")
        assert "now 2%" in told[1]
