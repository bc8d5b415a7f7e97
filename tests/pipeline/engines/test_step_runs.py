"""Steps of a training run in MLflow: a child each, the same for the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from mlflow import MlflowClient

from pipeline.engines.registry import Registry
from pipeline.engines.step_runs import DataUsed, Step, StepRuns
from schemas.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlflow.entities import Run

TAUGHT = Step(
    "teach",
    params={"distil.alpha": 0.5, "text": "x" * 600} | {f"p{n}": n for n in range(150)},
    metrics={"kept": 0.97},
    tags={"teacher.0": "models:/tickets/3 (abc)"},
    data=(
        DataUsed("models:/tickets/3", "a" * 64, "teacher 0"),
        DataUsed("labelled/tickets/rows.csv", "b" * 64, "unlabelled", rows=12),
    ),
    seconds=90.0,
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One for all of them: to make MLflow's tables takes longer than any test."""
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def parent(home: Home, request: pytest.FixtureRequest) -> str:
    return Registry(home).start_run("tickets", request.node.name, params={"train.seed": 1})


@pytest.fixture
def children(home: Home, parent: str) -> Callable[[], list[Run]]:
    """The parent's children in MLflow."""
    client = MlflowClient(home.tracking_uri)

    def find() -> list[Run]:
        experiment = client.get_run(parent).info.experiment_id
        return list(
            client.search_runs([experiment], filter_string=f"tags.mlflow.parentRunId = '{parent}'")
        )

    return find


def test_a_step_has_its_own_settings_figures_and_data(
    home: Home, parent: str, children: Callable[[], list[Run]]
) -> None:
    run_id = StepRuns(home).log(parent, TAUGHT)
    (run,) = children()
    assert run.info.run_id == run_id
    assert (run.info.run_name, run.info.status) == ("teach", "FINISHED")
    assert 89_000 < run.info.end_time - run.info.start_time < 120_000
    assert run.data.tags["nightmill.step"] == "teach"
    assert run.data.tags["teacher.0"] == "models:/tickets/3 (abc)"
    assert run.data.params["distil.alpha"] == "0.5"
    assert run.data.params["p149"] == "149"
    assert run.data.params["text"] == "x" * 500
    assert run.data.metrics == {"kept": 0.97}
    data = {
        (used.dataset.name, used.dataset.digest, used.tags[0].value)
        for used in run.inputs.dataset_inputs
    }
    assert data == {
        ("models:/tickets/3", "a" * 12, "teacher 0"),
        ("labelled/tickets/rows.csv", "b" * 12, "unlabelled"),
    }


def test_the_same_step_again_is_the_same_child_and_another_is_not(
    home: Home, parent: str, children: Callable[[], list[Run]], request: pytest.FixtureRequest
) -> None:
    steps = StepRuns(home)
    first = steps.log(parent, Step("bundle", params={"compress.prefer": "fp32"}))
    assert steps.log(parent, Step("bundle", params={"compress.prefer": "fp32"})) == first
    other = steps.log(parent, Step("bundle", params={"compress.prefer": "int8_static"}))
    assert other != first
    assert {run.info.run_id for run in children()} == {first, other}
    # A training run that is taken up again is found by its name, which no child has.
    assert Registry(home).start_run("tickets", request.node.name, params={}) == parent


def test_a_step_that_died_while_it_was_logged_is_completed(
    home: Home, parent: str, children: Callable[[], list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = StepRuns(home)
    with monkeypatch.context() as patch:
        patch.setattr(StepRuns, "_fill", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            steps.log(parent, TAUGHT)
    assert [run.info.status for run in children()] == ["RUNNING"]
    run_id = steps.log(parent, TAUGHT)
    (run,) = children()
    assert (run.info.run_id, run.info.status) == (run_id, "FINISHED")
    assert run.data.metrics == {"kept": 0.97}


def test_a_page_is_a_server_s_and_has_no_password(
    home: Home, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = StepRuns(home)
    assert steps.page(parent) == ""
    monkeypatch.setattr(steps, "_uri", "https://ada:secret@mlflow.example:5000/base/")
    page = urlsplit(steps.page(parent))
    assert page.netloc == "mlflow.example:5000"
    assert page.path == "/base/"
    assert page.fragment.endswith(f"/runs/{parent}")
