"""MLflow on SQLite: runs, versions, aliases, and the exact bundle behind a URI."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from pipeline.bundle import load_spec
from pipeline.engines.model_version import requirements
from pipeline.engines.pyfunc import PyfuncModel
from pipeline.engines.registry import CHALLENGER, PREVIOUS, Registry
from pipeline.engines.software import code_digest
from schemas.bundle import BUNDLE_FILE, MODEL_FILE
from schemas.errors import ArtifactError, ConfigError
from schemas.home import Home

# MLflow takes seconds to make its tables.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared_home(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with two registered versions of the model `tiny`, the first one champion."""
    home = Home(tmp_path_factory.mktemp("registry"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        registry = Registry(home)
        first = registry.start_run("tiny", "r1", params={})
        assert registry.register("tiny", tiny_bundle, run_id=first) == "1"
        registry.promote("tiny", "1", approver="ann", reason="first")
        second = registry.start_run("tiny", "r2", params={})
        other = other_bundle(tiny_bundle, home.root / "other")
        assert registry.register("tiny", other, run_id=second) == "2"
    return home


@pytest.fixture
def registered_home(shared_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The shared home with a database of the test's own, which may move aliases."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "home"
    root.mkdir()
    for path in shared_home.root.glob("mlflow.db*"):
        shutil.copyfile(path, root / path.name)
    return Home(root)


@pytest.fixture
def registered(registered_home: Home) -> Registry:
    return Registry(registered_home)


def other_bundle(bundle: Path, folder: Path, *, temperature: float = 3.0) -> Path:
    """The same weights with another temperature: another digest."""
    shutil.copytree(bundle, folder)
    spec = load_spec(folder)
    spec.model_copy(update={"temperatures": {"queue": temperature, "topics": 1.0}}).write(
        folder / BUNDLE_FILE
    )
    return folder


def version_at(registry: Registry, alias: str) -> str:
    return registry.fetch(f"models:/tiny@{alias}")[0].version


def test_a_run_that_is_taken_up_again_is_the_same_run(registered_home: Home) -> None:
    registry = Registry(registered_home)
    first = registry.start_run("new", "r1", params={"epochs": 3, "long": "x" * 900})
    assert registry.start_run("new", "r1", params={"epochs": 3}) == first
    assert Registry(registered_home).start_run("new", "r1", params={}) == first
    assert registry.start_run("new", "r2", params={}) != first
    run = MlflowClient(registered_home.tracking_uri).get_run(first)
    assert run.data.params["epochs"] == "3"
    assert len(run.data.params["long"]) == 500


def test_numbers_tags_data_and_files_are_logged(registered_home: Home, tmp_path: Path) -> None:
    registry = Registry(registered_home)
    run_id = registry.start_run("new", "r1", params={})
    registry.log_metrics(run_id, {"valid.macro_f1": 0.5}, step=1)
    registry.log_metrics(run_id, {"valid.macro_f1": 0.75}, step=2)
    registry.tag(run_id, {"nightmill.variant": "fp32"})
    registry.log_dataset(run_id, name="labelled", digest="d" * 64, source="in/*.csv", rows=9)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "gates.json").write_text("[]")
    registry.log_files(run_id, tmp_path / "page", under="page")
    registry.finish_run(run_id)
    client = MlflowClient(registered_home.tracking_uri)
    run = client.get_run(run_id)
    assert run.data.metrics == {"valid.macro_f1": 0.75}
    assert [m.step for m in client.get_metric_history(run_id, "valid.macro_f1")] == [1, 2]
    assert run.data.tags["nightmill.variant"] == "fp32"
    assert run.inputs.dataset_inputs[0].dataset.digest == "d" * 12
    assert [file.path for file in client.list_artifacts(run_id, "page")] == ["page/gates.json"]
    assert run.info.status == "FINISHED"


def test_a_registered_bundle_is_challenger_and_comes_back_as_it_was(
    registered: Registry, tiny_bundle: Path
) -> None:
    model, folder = registered.fetch("models:/tiny/1")
    spec = load_spec(tiny_bundle)
    assert (model.name, model.version, model.digest) == ("tiny", "1", spec.digest)
    assert load_spec(folder) == spec
    assert (folder / MODEL_FILE).read_bytes() == (tiny_bundle / MODEL_FILE).read_bytes()
    assert version_at(registered, CHALLENGER) == "2"
    assert registered.champion("tiny") == "1"


def test_a_version_can_be_traced_back_by_its_tags(registered: Registry, tiny_bundle: Path) -> None:
    spec = load_spec(tiny_bundle)
    second, first = registered.versions("tiny")
    assert (first.model.version, first.aliases) == ("1", ("champion",))
    assert (second.model.version, second.aliases) == ("2", (CHALLENGER,))
    assert (
        dict(first.tags).items()
        >= {
            "nightmill.digest": spec.digest,
            "nightmill.code": code_digest(),
            "nightmill.run": "tiny-run",
            "nightmill.variant": "fp32",
            "nightmill.backbone": spec.backbone,
            "nightmill.data": spec.data_digest,
            "nightmill.config": spec.task.digest,
        }.items()
    )
    assert first.run_id == registered.start_run("tiny", "r1", params={})
    assert "queue macro-F1 0.500" in first.description
    assert registered.version("tiny", "1") == first
    assert (registered.names(), registered.resolve("tiny", "@champion")) == (("tiny",), "1")


def test_a_version_has_a_signature_and_an_example_that_fits_it(registered: Registry) -> None:
    mlflow.set_tracking_uri(registered._uri)
    info = mlflow.models.get_model_info("models:/tiny/1")
    assert info.signature.inputs.input_names() == ["subject", "body", "ticket_id"]
    example = mlflow.pyfunc.load_model("models:/tiny/1").input_example
    assert example.to_dict("records") == [
        {"subject": "text of subject", "body": "text of body", "ticket_id": "1"}
    ]


def test_a_model_is_not_run_to_be_registered(
    registered: Registry, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("load_context", "predict"):
        monkeypatch.setattr(PyfuncModel, method, lambda *_, **__: pytest.fail("it was run"))
    other = other_bundle(tiny_bundle, tmp_path / "another", temperature=5.0)
    run_id = registered.start_run("tiny", "r3", params={})
    assert registered.register("tiny", other, run_id=run_id) == "3"
    assert version_at(registered, CHALLENGER) == "3"


def test_a_description_is_read_without_the_rest_of_a_bundle(
    registered: Registry, tiny_bundle: Path
) -> None:
    spec = load_spec(tiny_bundle)
    model = registered.ref("tiny", "1")
    assert registered.spec(model) == spec
    kept = registered._home.downloads / "specs" / spec.digest / BUNDLE_FILE
    assert kept.exists()
    assert not list(registered._home.downloads.rglob(MODEL_FILE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow.artifacts.download_artifacts", lambda *_, **__: pytest.fail("no"))
        assert registered.spec(model) == spec


def test_the_same_bundle_again_keeps_its_version(registered: Registry, tiny_bundle: Path) -> None:
    run_id = registered.start_run("tiny", "r3", params={})
    assert registered.register("tiny", tiny_bundle, run_id=run_id) == "1"


def test_promotion_keeps_the_old_champion_as_previous(registered: Registry) -> None:
    assert registered.promote("tiny", "2", approver="bob", reason="better") == "1"
    assert registered.champion("tiny") == "2"
    assert version_at(registered, PREVIOUS) == "1"
    with pytest.raises(ArtifactError, match="champion version 2"):
        version_at(registered, CHALLENGER)
    assert registered.promote("tiny", "2", approver="bob", reason="again") == "2"
    assert version_at(registered, PREVIOUS) == "1"


def test_failure_44_the_history_lies_in_mlflow_beside_the_models(registered: Registry) -> None:
    registered.promote("tiny", "2", approver="bob", reason="better")
    registered.promote("tiny", "2", approver="bob", reason="again")
    registered.promotions.reject(registered.ref("tiny", "1"), approver="eve", reason="worse")
    registered.promotions.roll_back(
        "tiny", lambda version: registered.ref("tiny", version), approver="bob", reason="back"
    )
    assert (registered.champion("tiny"), version_at(registered, PREVIOUS)) == ("1", "2")
    told = registered.promotions.history("tiny")
    assert [(d.action, d.version, d.before, d.approver, d.reason) for d in told] == [
        ("promoted", "1", None, "ann", "first"),
        ("promoted", "2", "1", "bob", "better"),
        ("rejected", "1", "2", "eve", "worse"),
        ("rolled back", "1", "2", "bob", "back"),
    ]
    assert [d.digest for d in told] == [registered.ref("tiny", d.version).digest for d in told]
    evidence = told[-1].evidence
    assert evidence is not None
    assert evidence.heads["queue"].accuracy_interval == (0.2, 0.8)
    client = MlflowClient(registered._uri)
    experiment = client.get_experiment_by_name("nightmill-promotions")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert runs[0].data.tags["nightmill.action"] == "rolled back"
    assert client.get_model_version("tiny", "1").tags["nightmill.reason"] == "back"


def test_a_version_that_is_not_there_cannot_be_promoted(registered: Registry) -> None:
    with pytest.raises(
        ArtifactError, match=r"no model models:/tiny/9: model 'tiny' has .*champion"
    ):
        registered.promote("tiny", "9", approver="bob", reason="")
    assert registered.champion("tiny") == "1"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("models:/tiny/9", "no model models:/tiny/9: model 'tiny' has .*champion version 1"),
        (
            "models:/tiny@beta",
            "no model models:/tiny@beta: model 'tiny' has .*champion version 1",
        ),
        ("models:/none@champion", r"no model named 'none' is registered \(registered: tiny\)"),
        ("models:/none/1", r"no model named 'none' is registered \(registered: tiny\)"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(
    registered: Registry, uri: str, message: str
) -> None:
    with pytest.raises(ArtifactError, match=message):
        registered.fetch(uri)


def test_an_empty_registry_says_how_to_train(home: Home) -> None:
    registry = Registry(home)
    assert registry.champion("tickets") is None
    with pytest.raises(ArtifactError, match=r"registered: none\); train one with `nightmill train"):
        registry.fetch("models:/tickets@champion")


@pytest.mark.parametrize("uri", ["tiny", "models:/tiny", "models:/tiny/latest", "s3://x/y", ""])
def test_a_uri_of_another_form_is_a_config_error(registered: Registry, uri: str) -> None:
    with pytest.raises(ConfigError, match="expected models:/NAME@ALIAS, models:/NAME/VERSION or"):
        registered.fetch(uri)


def test_a_folder_is_a_model_too(registered: Registry, tiny_bundle: Path) -> None:
    model, folder = registered.fetch(f"path:{tiny_bundle}")
    assert folder == tiny_bundle
    assert (model.version, model.digest) == ("local", load_spec(tiny_bundle).digest)
    with pytest.raises(ArtifactError, match="does not exist"):
        registered.fetch("path:/no/such/folder")


def test_a_bundle_is_fetched_once(registered: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder = registered.fetch("models:/tiny/1")
    before = (folder / MODEL_FILE).stat().st_ino
    monkeypatch.setattr("mlflow.artifacts.download_artifacts", lambda *_, **__: pytest.fail("no"))
    assert registered.fetch("models:/tiny@champion")[1] == folder
    assert (folder / MODEL_FILE).stat().st_ino == before


@pytest.mark.parametrize("damage", ["altered", "missing", "description", "empty folder"])
def test_a_damaged_cache_is_fetched_again(registered: Registry, damage: str) -> None:
    _, folder = registered.fetch("models:/tiny/1")
    if damage == "altered":
        (folder / MODEL_FILE).write_bytes(b"torn")
    elif damage == "missing":
        (folder / MODEL_FILE).unlink()
    elif damage == "description":
        (folder / BUNDLE_FILE).write_text("{")
    else:
        shutil.rmtree(folder)
        (folder / "left").mkdir(parents=True)
    model, again = registered.fetch("models:/tiny/1")
    assert again == folder
    assert load_spec(again).digest == model.digest


def test_damaged_artefacts_are_told(
    registered: Registry, monkeypatch: pytest.MonkeyPatch, tiny_bundle: Path, tmp_path: Path
) -> None:
    other = other_bundle(tiny_bundle, tmp_path / "another")

    def downloads(_: str, dst_path: str) -> None:
        shutil.copytree(other, Path(dst_path) / "artifacts" / "bundle")

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", downloads)
    with pytest.raises(ArtifactError, match=r"models:/tiny/1 has digest .*, registered was "):
        registered.fetch("models:/tiny/1")


def test_artefacts_without_a_bundle_are_told(
    registered: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlflow.artifacts.download_artifacts", lambda *_, **__: None)
    with pytest.raises(ArtifactError, match="models:/tiny/1 holds no bundle"):
        registered.fetch("models:/tiny/1")


FIRST_USE = """
import pathlib, sys
from pipeline.engines.registry import Registry
from schemas.home import Home
registry = Registry(Home(pathlib.Path(sys.argv[1])))
registry.start_run("tiny", sys.argv[2], params={"x": 1})
"""


def test_failure_44_concurrent_first_use_does_not_race(home: Home) -> None:
    """The database is made once, whoever comes first."""
    assert run_at_once(FIRST_USE, home, [f"r{number}" for number in range(3)]) == [""] * 3
    client = MlflowClient(home.tracking_uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "nightmill-tiny"]
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["r0", "r1", "r2"]


FETCH = """
import pathlib, sys
from pipeline.engines.registry import Registry
from schemas.home import Home
print(Registry(Home(pathlib.Path(sys.argv[1]))).fetch(sys.argv[2])[1])
"""


def test_drivers_that_fetch_one_bundle_at_once_do_not_race(
    registered_home: Home, tiny_bundle: Path
) -> None:
    folder = registered_home.downloads / load_spec(tiny_bundle).digest[:16]
    found = run_at_once(FETCH, registered_home, ["models:/tiny/1", "models:/tiny@champion"])
    assert found == [f"{folder}\n"] * 2
    assert load_spec(folder) == load_spec(tiny_bundle)
    assert not list(registered_home.downloads.glob(".*.tmp"))


def run_at_once(code: str, home: Home, arguments: list[str]) -> list[str]:
    """What processes that start together print, after making sure that all succeeded."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(home.root), argument],
            stdout=subprocess.PIPE,
            text=True,
        )
        for argument in arguments
    ]
    printed = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(arguments)
    return printed


IMPORTED = """
import ast, inspect, json, sys
import pipeline.engines.pyfunc

own = [module for name, module in sys.modules.items() if name.startswith(("pipeline.", "schemas."))]
nodes = [node for module in own for node in ast.walk(ast.parse(inspect.getsource(module)))]
names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
print(json.dumps(sorted({name.partition(".")[0] for name in names})))
"""


def test_a_model_asks_for_every_package_that_its_code_imports() -> None:
    """A notebook elsewhere installs what the model names, and must be able to load it."""
    told = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    ours = {"pipeline", "schemas", *sys.stdlib_module_names}
    imported = set(json.loads(told.splitlines()[-1])) - ours
    by_module = packages_distributions()
    asked = {line.partition("==")[0].lower() for line in requirements()}
    missing = {name for name in imported if not asked & {d.lower() for d in by_module[name]}}
    assert missing == set()
    assert {"phonenumbers", "stdnum", "tokenizers"} <= imported
