"""Decisions about models: an append-only history that aliases follow, whoever dies or hurries."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities import PagedList

from pipeline.bundle import load_spec
from pipeline.engines.promotions import CHALLENGER, CHAMPION, PREVIOUS, Promotions
from schemas.errors import ArtifactError, ConfigError, TransientError
from schemas.manifest import ModelRef
from schemas.promotion import Decision, champions_between

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from schemas.bundle import BundleSpec


class Died(Exception):
    """Stands for a process that is killed."""


class FakeMlflow:
    """The part of MLflow's client that the history uses, in memory; pages hold two runs.

    `before[method]` is called once, before the method's call with that number (from 0).
    """

    def __init__(self, versions: tuple[str, ...] = ("1", "2", "3")) -> None:
        self.versions: dict[str, dict[str, str]] = {
            version: {"nightmill.code": f"c{version}"} for version in versions
        }
        self.aliases = {CHAMPION: "1", CHALLENGER: "2"}
        self.runs: list[Any] = []
        self.before: dict[tuple[str, int], Callable[[], Any]] = {}
        self._calls: dict[str, int] = {}

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith(("set_", "create_", "delete_")):
            number = self._calls.get(name, 0)
            self._calls[name] = number + 1
            if (happens := self.before.pop((name, number), None)) is not None:
                happens()
        return found

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name) if self.runs else None

    def create_run(
        self, experiment: str, run_name: str, start_time: int, tags: dict[str, str]
    ) -> Any:
        assert all(len(text) <= 5000 for text in tags.values())
        info = SimpleNamespace(
            run_id=f"run{len(self.runs)}",
            status="RUNNING",
            start=start_time,
            name=run_name,
            experiment=experiment,
        )
        self.runs.append(SimpleNamespace(info=info, data=SimpleNamespace(tags=tags)))
        return self.runs[-1]

    def search_runs(
        self, _: list[str], filter_string: str, order_by: list[str], page_token: str | None
    ) -> Any:
        assert order_by == ["attributes.start_time DESC"]
        assert filter_string == "tags.`nightmill.model` = 'tiny'"
        found = sorted(self.runs, key=lambda run: run.info.start, reverse=True)
        at = int(page_token or 0)
        return PagedList(found[at : at + 2], str(at + 2) if len(found) > at + 2 else None)

    def set_terminated(self, run_id: str, status: str) -> None:
        next(run for run in self.runs if run.info.run_id == run_id).info.status = status

    def get_model_version(self, _: str, version: str) -> Any:
        if version not in self.versions:
            raise MlflowException("no such version", error_code=RESOURCE_DOES_NOT_EXIST)
        return SimpleNamespace(version=version, tags=self.versions[version])

    def set_model_version_tag(self, name: str, version: str, key: str, value: str) -> None:
        self.get_model_version(name, version).tags[key] = value

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> None:
        self.get_model_version(name, version)
        self.aliases[alias] = version

    def delete_registered_model_alias(self, _: str, alias: str) -> None:
        del self.aliases[alias]

    def get_model_version_by_alias(self, name: str, alias: str) -> Any:
        if alias not in self.aliases:
            raise MlflowException("no such alias", error_code=INVALID_PARAMETER_VALUE)
        return self.get_model_version(name, self.aliases[alias])


@pytest.fixture
def mlflow() -> FakeMlflow:
    return FakeMlflow()


@pytest.fixture(scope="session")
def spec(tiny_bundle: Path) -> BundleSpec:
    return load_spec(tiny_bundle)


@pytest.fixture
def host(mlflow: FakeMlflow, spec: BundleSpec, tmp_path: Path) -> Callable[..., Promotions]:
    """Makes the history as another host sees it: with a lock file of its own."""

    def make(name: str = "here") -> Promotions:
        return Promotions(
            mlflow, experiment=lambda: "e", spec_of=lambda _: spec, lock=tmp_path / name
        )

    return make


def ref(version: str) -> ModelRef:
    return ModelRef(name="tiny", version=version, digest=f"digest{version}")


def lines(decisions: tuple[Decision, ...]) -> list[tuple[str, str, str | None, str]]:
    return [(d.action, d.version, d.before, d.approver) for d in decisions]


def test_failure_44_a_promotion_is_a_line_with_who_why_and_on_what_evidence(
    mlflow: FakeMlflow, host: Callable[..., Promotions], spec: BundleSpec
) -> None:
    before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
    decision = host().promote(ref("2"), approver="ann", reason="better on returns")
    assert decision is not None
    assert mlflow.aliases == {CHAMPION: "2", PREVIOUS: "1"}
    (line,) = host("elsewhere").history("tiny")
    assert line == decision
    assert (line.action, line.version, line.before) == ("promoted", "2", "1")
    assert (line.digest, line.approver, line.reason) == ("digest2", "ann", "better on returns")
    assert before <= line.at <= dt.datetime.now(dt.UTC)
    evidence = line.evidence
    assert evidence is not None
    assert (evidence.data_digest, evidence.code) == (spec.data_digest, "c2")
    assert evidence.heads["queue"].macro_f1_interval == spec.metrics["queue"].macro_f1_interval
    (run,) = mlflow.runs
    assert (run.info.status, run.info.name) == ("FINISHED", "tiny version 2 promoted")
    assert run.data.tags["nightmill.approver"] == "ann"
    assert mlflow.versions["2"]["nightmill.reason"] == "better on returns"


def test_promoting_the_champion_again_adds_no_line(
    mlflow: FakeMlflow, host: Callable[..., Promotions]
) -> None:
    assert host().promote(ref("1"), approver="ann", reason="") is None
    assert (mlflow.runs, mlflow.aliases) == ([], {CHAMPION: "1", CHALLENGER: "2"})


CRASHES = [
    ("create_run", 0), ("set_model_version_tag", 0), ("set_model_version_tag", 2),
    ("set_registered_model_alias", 0), ("set_registered_model_alias", 1),
    ("delete_registered_model_alias", 0), ("set_terminated", 0),
]  # fmt: skip


@pytest.mark.parametrize(("method", "number"), CRASHES)
@pytest.mark.parametrize("healer", ["history", "the same again", "another promotion"])
def test_failure_44_a_process_that_dies_anywhere_leaves_all_or_nothing_to_the_next_one(
    mlflow: FakeMlflow, host: Callable[..., Promotions], method: str, number: int, healer: str
) -> None:
    def die() -> None:
        raise Died

    mlflow.before[method, number] = die
    with pytest.raises(Died):
        host().promote(ref("2"), approver="ann", reason="")
    is_written = method != "create_run"
    expected = [("promoted", "2", "1", "ann")] if is_written else []
    if healer == "the same again":
        host().promote(ref("2"), approver="ann", reason="")
        expected = [("promoted", "2", "1", "ann")]
    if healer == "another promotion":
        host().promote(ref("3"), approver="bob", reason="")
        expected.append(("promoted", "3", "2" if is_written else "1", "bob"))
    assert lines(host().history("tiny")) == expected
    assert {run.info.status for run in mlflow.runs} <= {"FINISHED"}
    champion = expected[-1][1] if expected else "1"
    previous = {PREVIOUS: expected[-1][2]} if expected else {}
    challenger = {CHALLENGER: "2"} if all(line[1] != "2" for line in expected) else {}
    assert mlflow.aliases == {CHAMPION: champion, **previous, **challenger}


@pytest.mark.parametrize("at", range(5))
def test_failure_44_of_two_promotions_at_once_the_later_line_is_the_champion(
    mlflow: FakeMlflow, host: Callable[..., Promotions], at: int
) -> None:
    """The slower host's own alias comes last, and is put right by it."""
    moments = [*CRASHES[1:4], CRASHES[4], CRASHES[6]]
    mlflow.before[moments[at]] = lambda: host("there").promote(ref("3"), approver="bob", reason="")
    host("here").promote(ref("2"), approver="ann", reason="")
    told = host().history("tiny")
    assert [line.version for line in told] == ["2", "3"]
    assert mlflow.aliases[CHAMPION] == "3"
    assert {run.info.status for run in mlflow.runs} == {"FINISHED"}


def test_a_rejection_keeps_the_challenger_with_the_reason(
    mlflow: FakeMlflow, host: Callable[..., Promotions]
) -> None:
    host().reject(ref("2"), approver="nobody", reason="no answer within 24 h")
    assert mlflow.aliases == {CHAMPION: "1", CHALLENGER: "2"}
    assert mlflow.versions["2"]["nightmill.decision"] == "rejected"
    assert mlflow.versions["2"]["nightmill.reason"] == "no answer within 24 h"
    assert host().reject(ref("2"), approver="nobody", reason="no answer within 24 h") is None
    assert host().reject(ref("2"), approver="ann", reason="worse") is not None
    assert lines(host().history("tiny")) == [
        ("rejected", "2", "1", "nobody"),
        ("rejected", "2", "1", "ann"),
    ]
    host().promote(ref("2"), approver="bob", reason="better than nothing")
    assert mlflow.versions["2"]["nightmill.decision"] == "promoted"
    with pytest.raises(ConfigError, match="models:/tiny/2 is the champion and cannot be rejected"):
        host().reject(ref("2"), approver="ann", reason="")


def test_a_rollback_is_recorded_and_a_second_one_refused(
    mlflow: FakeMlflow, host: Callable[..., Promotions]
) -> None:
    with pytest.raises(ArtifactError, match="'tiny' has no previous champion"):
        host().roll_back("tiny", ref, approver="ann", reason="")
    host().promote(ref("2"), approver="ann", reason="")
    decision = host().roll_back("tiny", ref, approver="bob", reason="billing goes astray")
    assert (decision.version, decision.before, decision.digest) == ("1", "2", "digest1")
    assert mlflow.aliases == {CHAMPION: "1", PREVIOUS: "2"}
    with pytest.raises(ConfigError, match=r"by a rollback from version 2; .*--version 2"):
        host().roll_back("tiny", ref, approver="bob", reason="")
    host().promote(ref("2"), approver="ann", reason="mended")
    host().roll_back("tiny", ref, approver="bob", reason="not mended")
    assert lines(host().history("tiny")) == [
        ("promoted", "2", "1", "ann"),
        ("rolled back", "1", "2", "bob"),
        ("promoted", "2", "1", "ann"),
        ("rolled back", "1", "2", "bob"),
    ]


def test_a_rollback_goes_by_the_alias_where_mlflow_itself_has_moved_it(
    mlflow: FakeMlflow, host: Callable[..., Promotions]
) -> None:
    host().promote(ref("2"), approver="ann", reason="")
    host().roll_back("tiny", ref, approver="ann", reason="")
    mlflow.aliases |= {CHAMPION: "3", PREVIOUS: "1"}
    assert host().roll_back("tiny", ref, approver="ann", reason="").before == "3"
    assert mlflow.aliases[CHAMPION] == "1"


def test_a_decision_about_a_version_that_went_away_blocks_nobody(
    mlflow: FakeMlflow, host: Callable[..., Promotions], caplog: pytest.LogCaptureFixture
) -> None:
    mlflow.before["set_model_version_tag", 0] = lambda: mlflow.versions.pop("2")
    with pytest.raises(ArtifactError, match="models:/tiny/2 cannot be promoted: it is not there"):
        host().promote(ref("2"), approver="ann", reason="")
    assert "models:/tiny/2 was to be promoted by ann" in caplog.text
    assert host().history("tiny") == ()
    assert mlflow.aliases[CHAMPION] == "1"
    assert host().promote(ref("3"), approver="ann", reason="") is not None


def test_who_may_only_read_sees_a_decision_that_is_not_carried_out_yet(
    mlflow: FakeMlflow, host: Callable[..., Promotions], caplog: pytest.LogCaptureFixture
) -> None:
    def die() -> None:
        raise Died

    def refuse() -> None:
        raise ConfigError("MLflow refuses these credentials")

    mlflow.before["set_registered_model_alias", 0] = die
    with pytest.raises(Died):
        host().promote(ref("2"), approver="ann", reason="")
    mlflow.before["set_registered_model_alias", 1] = refuse
    assert lines(host().history("tiny")) == [("promoted", "2", "1", "ann")]
    assert "is not carried out yet: MLflow refuses" in caplog.text
    assert mlflow.aliases[CHAMPION] == "1"


def test_a_host_whose_clock_is_behind_still_decides_last(
    mlflow: FakeMlflow, host: Callable[..., Promotions]
) -> None:
    first = host().promote(ref("2"), approver="ann", reason="")
    assert first is not None
    ahead = first.model_copy(
        update={"version": "3", "before": "2", "at": first.at + dt.timedelta(hours=1)}
    )
    host()._record(ahead)
    host().promote(ref("1"), approver="bob", reason="")
    told = host().history("tiny")
    assert [line.version for line in told] == ["2", "3", "1"]
    assert told[-1].at == ahead.at + dt.timedelta(milliseconds=1)
    assert mlflow.aliases[CHAMPION] == "1"


def test_evidence_of_any_length_comes_back_as_it_was_and_a_reason_is_bounded(
    mlflow: FakeMlflow, spec: BundleSpec, tmp_path: Path
) -> None:
    many = spec.model_copy(
        update={"metrics": {f"head{n}": spec.metrics["queue"] for n in range(90)}}
    )
    here = Promotions(
        mlflow, experiment=lambda: "e", spec_of=lambda _: many, lock=tmp_path / "lock"
    )
    decision = here.promote(ref("2"), approver="ann", reason="ü" * 1200)
    (line,) = here.history("tiny")
    assert line == decision
    assert line.evidence is not None
    assert len(line.evidence.heads) == 90
    assert line.reason == "ü" * 999 + "…"


def test_what_must_happen_now_does_not_wait_for_evidence(
    mlflow: FakeMlflow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_: ModelRef) -> BundleSpec:
        raise TransientError("the artefacts cannot be reached")

    here = Promotions(mlflow, experiment=lambda: "e", spec_of=away, lock=tmp_path / "lock")
    decision = here.promote(ref("2"), approver="ann", reason="")
    assert decision is not None
    assert decision.evidence is None
    assert "decided without evidence on record: the artefacts cannot be reached" in caplog.text


def test_a_line_that_was_altered_is_named(
    mlflow: FakeMlflow, host: Callable[..., Promotions]
) -> None:
    host().promote(ref("2"), approver="ann", reason="")
    mlflow.runs[0].data.tags["nightmill.decision.0"] = "{"
    with pytest.raises(ArtifactError, match="run run0 of experiment nightmill-promotions is not"):
        host().history("tiny")


def decision_at(version: str, at: str, action: Any = "promoted") -> Decision:
    return Decision(
        model="tiny", version=version, digest="d", action=action, before=None, approver="ann",
        reason="", at=dt.datetime.fromisoformat(at),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "versions"),
    [
        ("2026-11-26", "2026-11-27", []),
        ("2026-11-27", "2026-11-28", ["1"]),
        ("2026-11-28", "2026-11-29", ["1", "2"]),
        ("2026-11-29", "2026-11-30", ["2"]),
        ("2026-11-28T13:59", "2026-11-28T13:59", ["1"]),
        ("2026-11-28T14:00", "2026-11-28T14:00", ["2"]),
    ],
)
def test_failure_44_the_history_tells_who_was_champion_on_a_date(
    start: str, end: str, versions: list[str]
) -> None:
    told = [
        decision_at("2", "2026-11-28T14:00+00:00"),
        decision_at("3", "2026-11-28T16:00+00:00", "rejected"),
        decision_at("1", "2026-11-27T08:00+00:00"),
    ]
    moments = [dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in (start, end)]
    assert [found.version for found in champions_between(told, *moments)] == versions
