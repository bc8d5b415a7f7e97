"""`nightmill models`: what is registered, what differs, who decided, and files to take."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import jobs.score
from jobs import models_pull
from jobs.options import Context
from jobs.score import score_dates
from pipeline.bundle import load_spec
from pipeline.engines.registry import Registry
from schemas.bundle import BUNDLE_FILE, MODEL_FILE, BundleSpec
from schemas.distilled import Distilled, TeacherRef
from schemas.errors import TransientError
from schemas.home import Home
from schemas.load import load_task
from schemas.partition import date_range

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    Run = Callable[..., Result]

# MLflow takes seconds to make its tables.
pytestmark = pytest.mark.slow

TEACHER = TeacherRef(address="models:/large/7", digest="f" * 64)


def better(spec: BundleSpec) -> BundleSpec:
    """Another version: trained longer, by a teacher, and sure to be better."""
    queue = spec.metrics["queue"].model_copy(
        update={"macro_f1": 0.9, "macro_f1_interval": (0.85, 0.95)}
    )
    train = spec.task.train.model_copy(update={"epochs": 5})
    return spec.model_copy(
        update={
            "temperatures": {"queue": 3.0, "topics": 1.0},
            "task": spec.task.model_copy(update={"train": train}),
            "metrics": spec.metrics | {"queue": queue},
            "data_digest": "1" * 64,
            "distilled": Distilled(
                teachers=(TEACHER,), teacher_valid_macro_f1=0.9, student_valid_macro_f1=0.8
            ),
        }
    )


@pytest.fixture(scope="module")
def shared_home(
    tiny_bundle: Path, tiny_task: Any, tmp_path_factory: pytest.TempPathFactory
) -> Home:
    """A home with two versions of the model `tiny`, the first one champion."""
    home = Home(tmp_path_factory.mktemp("models"))
    home.tasks.mkdir()
    raw = tiny_task.model_dump(mode="json")
    (home.tasks / "tiny.yaml").write_text(yaml.safe_dump(raw), encoding="utf-8")
    other = home.root / "other"
    shutil.copytree(tiny_bundle, other)
    better(load_spec(other)).write(other / BUNDLE_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        registry = Registry(home)
        run_id = registry.start_run("tiny", "r1", params={})
        registry.register("tiny", tiny_bundle, run_id=run_id)
        registry.promote("tiny", "1", approver="ann", reason="the first version")
        registry.register("tiny", other, run_id=registry.start_run("tiny", "r2", params={}))
    return home


@pytest.fixture
def models_home(shared_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The shared home with a database and a cache of the test's own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home = Home(tmp_path / "home")
    shutil.copytree(shared_home.tasks, home.tasks)
    for path in shared_home.root.glob("mlflow.db*"):
        shutil.copyfile(path, home.root / path.name)
    return home


@pytest.fixture
def models(models_home: Home, nightmill: Run, tmp_path: Path) -> Callable[..., Any]:
    """Runs a command; its result is in `answer`."""

    def run(*arguments: str) -> Any:
        result = tmp_path / "result.json"
        result.unlink(missing_ok=True)
        done: Any = nightmill("models", *arguments, "--result", str(result), home=models_home)
        done.answer = json.loads(result.read_text()) if result.exists() else None
        return done

    return run


def test_versions_are_listed_shown_and_compared(models: Callable[..., Any]) -> None:
    assert models("list").answer == {"models": {"tiny": {"challenger": "2", "champion": "1"}}}
    listed = models("list", "tiny")
    assert listed.answer == {"name": "tiny", "versions": {"2": ["challenger"], "1": ["champion"]}}
    assert "taughtbymodels:/large/7(ffffffffffff)" in re.sub(r"[│\s]", "", listed.stdout)

    shown = models("show", "tiny@challenger")
    assert shown.exit_code == 0, shown.stderr
    assert (shown.answer["version"], shown.answer["macro_f1"]["queue"]) == ("2", 0.9)
    assert shown.answer["data_digest"] == "1" * 64
    for part in ("models:/large/7", "0.850 to 0.950", "billing, technical, shipping", "tiny-run"):
        assert part in shown.stdout
    assert models("show", "tiny").answer["aliases"] == ["champion"]

    compared = models("diff", "tiny", "champion", "@challenger")
    assert compared.exit_code == 0, compared.stderr
    assert compared.answer["versions"] == ["1", "2"]
    assert compared.answer["settings"] == ["train.epochs"]
    figures = compared.answer["figures"]
    assert figures["queue.macro_f1"] == {"values": [0.5, 0.9], "overlap": False}
    assert figures["topics.macro_f1"] == {"values": [0.5, 0.5], "overlap": True}
    told = " ".join(compared.stdout.split())
    assert "train.epochs │ 1 │ 5" in told
    assert "do not overlap" in told


def test_failure_44_decisions_are_kept_and_a_date_can_be_asked(
    models: Callable[..., Any], models_home: Home
) -> None:
    who = ("--approver", "bob", "--reason")
    rejected = models("reject", "tiny", *who, "[no] answer within 24 h")
    assert rejected.answer == {"name": "tiny", "version": "2", "champion": "1"}
    promoted = models("promote", "tiny", *who, "better on returns")
    assert promoted.answer == {"name": "tiny", "version": "2", "previous": "1"}
    back = models("rollback", "tiny", *who, "billing goes astray")
    assert back.answer == {"name": "tiny", "version": "1", "previous": "2"}
    again = models("rollback", "tiny", *who, "")
    assert (again.exit_code, again.answer) == (2, None)
    assert "nightmill models promote tiny --version 2" in again.stderr

    history = models("history", "tiny")
    lines = [(d["action"], d["version"], d["before"]) for d in history.answer["decisions"]]
    assert lines == [
        ("promoted", "1", None),
        ("rejected", "2", "1"),
        ("promoted", "2", "1"),
        ("rolled back", "1", "2"),
    ]
    assert "[no] answer" in " ".join(history.stdout.split())
    today = dt.datetime.now(dt.UTC).date()
    asked = models("history", "tiny", "--at", today.isoformat())
    assert [d["version"] for d in asked.answer["decisions"]] == ["1", "2", "1"]
    assert "champion is version 2, promoted on" in asked.stdout
    assert "0.850 to 0.950" in asked.stdout  # the evidence for it
    early = models("history", "tiny", "--at", "2020-02-02")
    assert early.answer["decisions"] == []
    assert "the history begins later" in early.stdout

    # The alias can be moved in MLflow itself, which nobody can forbid here.
    Registry(models_home)._client.set_registered_model_alias("tiny", "champion", "2")
    assert "was moved by other means" in models("history", "tiny").stderr


def test_a_bundle_is_pulled_and_offline_it_is_the_last_known_one(
    models: Callable[..., Any], models_home: Home, tiny_bundle: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    target = tmp_path / "new" / "bundle"
    pulled = models("pull", "tiny@champion", str(target))
    assert pulled.exit_code == 0, pulled.stderr
    assert load_spec(target) == load_spec(tiny_bundle)
    assert (pulled.answer["version"], pulled.answer["offline_since"]) == ("1", None)
    assert sorted(path.name for path in target.parent.iterdir()) == ["bundle"]
    taken = models("pull", "tiny@champion", str(target))
    assert taken.exit_code == 2
    assert "exists and is not an empty folder" in taken.stderr

    def away(_: Home) -> Registry:
        raise TransientError("MLflow at http://models cannot be reached")

    monkeypatch.setattr(models_pull, "Registry", away)
    offline = models("pull", "tiny@champion", str(tmp_path / "offline"))
    assert offline.exit_code == 0, offline.stderr
    assert offline.answer["digest"] == load_spec(tmp_path / "offline").digest
    assert offline.answer["offline_since"].startswith(str(dt.datetime.now(dt.UTC).year))
    assert "OFFLINE: MLflow at http://models cannot be reached" in offline.stderr
    assert "was version 1 on 20" in offline.stderr
    never = models("pull", "tiny@challenger", str(tmp_path / "never"))
    assert never.exit_code == 75
    assert "was never fetched into this home" in never.stderr
    # Another registry may mean another model by the same name.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://another")
    assert models("pull", "tiny@champion", str(tmp_path / "other")).exit_code == 75
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    cached = next(models_home.downloads.glob(f"*/{MODEL_FILE}"))
    cached.write_bytes(b"torn")
    assert models("pull", "tiny@champion", str(tmp_path / "torn")).exit_code == 75
    assert not (tmp_path / "torn").exists()


def test_scoring_never_guesses_what_an_alias_means(
    models_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    Registry(models_home).fetch("models:/tiny@champion")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    task, no_ray = load_task("tiny", models_home), None
    with pytest.raises(TransientError, match="cannot be reached"):
        score_dates(task, [dt.date(2026, 11, 28)], ray=no_ray, context=Context(models_home))


def test_a_promotion_in_the_middle_of_a_range_changes_nothing_for_that_run(
    models_home: Home, write_night: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    used, plan_partition = [], jobs.score.plan_partition

    def planned(*arguments: Any, **named: Any) -> Any:
        plan = plan_partition(*arguments, **named)
        used.append(plan.model.version)
        Registry(models_home).promote("tiny", "2", approver="ann", reason="at night")
        return plan

    def scored(works: Any, _: Any, scorer: Any, **__: Any) -> None:
        used.append(scorer.model.version)
        for work in works:  # stands for Ray, which scores nothing here
            work.given_up = True

    monkeypatch.setattr(jobs.score, "plan_partition", planned)
    monkeypatch.setattr(jobs.score, "infer", scored)
    for day in ("2026-11-27", "2026-11-28"):
        write_night(models_home, day, rows=6)
    task = load_task("tiny", models_home)
    dates = date_range(dt.date(2026, 11, 27), dt.date(2026, 11, 28))
    no_ray: Any = None
    score_dates(task, dates, ray=no_ray, context=Context(models_home))
    assert used == ["1", "1", "1"]
    score_dates(task, dates[:1], ray=no_ray, context=Context(models_home))
    assert used[3:] == ["2", "2"]
