"""The nightly job on several nodes: room for it, sight of its files, and a node that dies."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from datetime import date as Date

import pytest
from ray.exceptions import RaySystemError

from jobs import cluster, node_check
from jobs.cluster import Node, cluster_workers, worker_nodes
from jobs.node_check import NodeDiedError
from jobs.ray_session import ray_session
from jobs.scoring import ShardTask
from pipeline.engines.host import this_host
from pipeline.publish import Partition
from pipeline.run_report import describe_effort
from schemas.errors import ArtifactError, ConfigError, TransientError
from schemas.fingerprint import digest_of_file
from schemas.home import Home
from schemas.manifest import Shard
from schemas.task import ScoreConfig

DAY = "2026-11-20"
NODE = Node("a", "10.0.0.1", cpus=4, gpus=0)


@pytest.fixture
def fake_cluster(monkeypatch):
    """Two nodes with 4 CPUs each and no autoscaler; `asked` is what was asked of it."""
    asked = []
    nodes = [NODE, dataclasses.replace(NODE, id="b", address="10.0.0.2")]
    monkeypatch.setattr(cluster, "worker_nodes", lambda: list(nodes))
    monkeypatch.setattr(cluster, "request_resources", lambda **told: asked.append(told))
    monkeypatch.setattr(cluster, "_most", lambda kind: 0)
    monkeypatch.setattr(cluster, "_POLL_S", 0)
    return nodes, asked


@pytest.mark.parametrize(
    ("score", "shards", "workers"),
    [
        ({}, 100, 8),
        ({"io_cpus": 3}, 100, 5),
        ({"workers": 2}, 100, 2),
        ({"workers": 8}, 3, 3),
    ],
)
def test_workers_are_what_the_cluster_has_room_for(fake_cluster, score, shards, workers):
    with cluster_workers(ScoreConfig(**score), shards=shards) as got:
        assert got == workers
    _, asked = fake_cluster
    assert len(asked[0]["bundles"]) == workers + score.get("io_cpus", 0)
    assert asked[-1] == {"num_cpus": 0}  # what was held back may go


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ({"workers": 9}, "8 CPUs on 2 nodes, 0 of them kept .* but 9 workers are asked for"),
        ({"workers": 8, "io_cpus": 1}, "8 CPUs on 2 nodes, 1 of them kept"),
        ({"io_cpus": 8}, "leaves none for a worker; lower score.io_cpus"),
        ({"device": "gpu", "workers": 1}, "8 CPUs and 0 GPUs on 2 nodes"),
    ],
)
@pytest.mark.usefixtures("fake_cluster")
def test_failure_02_more_cpus_than_there_are_is_an_error_and_no_hang(score, message):
    with (
        pytest.raises(ConfigError, match=message),
        cluster_workers(ScoreConfig(**score), shards=99),
    ):
        pytest.fail("a run began that can never end")


def test_failure_03_what_an_autoscaler_can_bring_is_waited_for(fake_cluster, monkeypatch):
    nodes, _ = fake_cluster
    monkeypatch.setattr(cluster, "_most", lambda kind: 12)
    monkeypatch.setattr(
        cluster.time, "sleep", lambda _: nodes.append(dataclasses.replace(NODE, id="c"))
    )
    with cluster_workers(ScoreConfig(workers=12), shards=99) as got:
        assert (got, len(nodes)) == (12, 3)


@pytest.mark.usefixtures("fake_cluster")
def test_nodes_that_do_not_come_end_the_job_for_now(monkeypatch):
    monkeypatch.setattr(cluster, "_most", lambda kind: 12)
    moments = iter(range(0, 1000, 100))
    monkeypatch.setattr(cluster.time, "monotonic", lambda: next(moments))
    score = ScoreConfig(workers=12, no_progress_timeout_s=250)
    with (
        pytest.raises(TransientError, match="nodes for 12 workers did not come within 250 s"),
        cluster_workers(score, shards=99),
    ):
        pytest.fail("a run began without its nodes")


@pytest.mark.usefixtures("fake_cluster")
@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_the_kinds_of_all_hosts_that_will_score_are_known(address, tmp_path, monkeypatch):
    """Each of them is asked for the bundle's gates before a row is scored."""
    kinds = {"node 10.0.0.1": this_host(), "node 10.0.0.2": this_host()}
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "ray_session", lambda **_: nullcontext())
    monkeypatch.setattr(cluster, "check_nodes", lambda nodes, **_: kinds)
    score = ScoreConfig(ray_address=address, workers=2)
    with cluster.scoring_pool(score, shards=2, shared=tmp_path, files=[]) as pool:
        assert pool.hosts == (kinds if address else {"this host": this_host()})


@pytest.mark.parametrize(
    ("score", "workers"), [({}, 4), ({"workers": 3}, 3)], ids=["all there are", "asked for"]
)
def test_a_node_that_died_unnoticed_is_planned_without(
    fake_cluster, tmp_path, monkeypatch, caplog, score, workers
):
    nodes, asked = fake_cluster
    kinds = {"node 10.0.0.1": this_host()}

    def check(listed, **_):
        if len(listed) == 1:
            return kinds
        nodes.pop()  # the next list does not have it
        raise NodeDiedError("node 10.0.0.2 died before it answered")

    monkeypatch.setattr(cluster, "ray_session", lambda **_: nullcontext())
    monkeypatch.setattr(cluster, "check_nodes", check)
    config = ScoreConfig(ray_address="10.0.0.1:6379", **score)
    with cluster.scoring_pool(config, shards=99, shared=tmp_path, files=[]) as pool:
        assert (pool.workers, pool.machines, pool.hosts) == (workers, 1, kinds)
        assert len(asked[-1]["bundles"]) == workers  # these are held back now
    assert asked[-1] == {"num_cpus": 0}
    assert "node 10.0.0.2 died before it answered; workers are planned without it" in caplog.text


def test_too_few_cpus_after_a_node_died_are_an_error(fake_cluster, tmp_path, monkeypatch):
    nodes, _ = fake_cluster

    def check(listed, **_):
        nodes.pop()
        raise NodeDiedError("node 10.0.0.2 died before it answered")

    monkeypatch.setattr(cluster, "ray_session", lambda **_: nullcontext())
    monkeypatch.setattr(cluster, "check_nodes", check)
    score = ScoreConfig(ray_address="10.0.0.1:6379", workers=8)
    with (
        pytest.raises(ConfigError, match=r"4 CPUs on 1 nodes, .* but 8 workers are asked for"),
        cluster.scoring_pool(score, shards=99, shared=tmp_path, files=[]),
    ):
        pytest.fail("a run began that can never end")


@pytest.mark.parametrize(
    ("is_alive", "kind", "message"),
    [
        (True, TransientError, r"node 10\.0\.0\.1 does not answer \(RaySystemError\); try again"),
        (False, NodeDiedError, r"node 10\.0\.0\.1 died before it answered"),
    ],
)
def test_a_node_without_an_answer_is_dead_or_slow(monkeypatch, is_alive, kind, message):
    def get(*_, **__):
        raise RaySystemError("lost")

    monkeypatch.setattr(node_check.ray, "get", get)
    monkeypatch.setattr(node_check.ray, "nodes", lambda: [{"NodeID": "a", "Alive": is_alive}])
    with pytest.raises(kind, match=message) as caught:
        node_check._answer(NODE, None)
    assert type(caught.value) is kind


def test_rows_never_pass_through_the_driver(tmp_path):
    """What is sent for a shard is its place, whatever stands in its rows."""
    shard = Shard(
        index=7, name="incoming/rows.jsonl", path="incoming/rows.jsonl", format="jsonl",
        start=0, stop=1 << 30, first_row=0, rows=1_000_000,
    )  # fmt: skip
    sent = ShardTask(shard, tmp_path / "staging", Date(2026, 11, 20), "0123456789abcdef").to_row()
    assert len(json.dumps(sent)) < 1000


@contextmanager
def running_cluster(*cpus):
    """A head without CPUs and a node for each number; all end with the block."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        yield nodes, [nodes.add_node(num_cpus=count) for count in cpus]
    finally:
        nodes.shutdown()


def start_score(home, *overrides):
    return subprocess.Popen(
        [sys.executable, "-m", "jobs", "score", "tiny", "--date", DAY, "score.rows_per_shard=4",
         *overrides, "--home", str(home.root)],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def published_files(home):
    folders = [home.scores("tiny") / f"date={DAY}", home.quarantine("tiny") / f"date={DAY}"]
    return {
        str(path.relative_to(home.root)): digest_of_file(path)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "publications.jsonl"
    }


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(600)
def test_a_cluster_gives_the_bytes_of_one_machine_though_a_node_dies(
    tiny_home, tmp_path, write_night
):
    alone = Home(tmp_path / "alone")
    alone.tasks.mkdir(parents=True)
    (alone.tasks / "tiny.yaml").write_text((tiny_home.tasks / "tiny.yaml").read_text())
    for home in (tiny_home, alone):
        write_night(home, DAY, rows=160)
    with running_cluster(2, 1) as (nodes, (_, dying)):
        address = f"score.ray_address={nodes.address}"
        too_many = start_score(tiny_home, address, "score.workers=4")
        told = too_many.communicate(timeout=120)[1]
        assert too_many.returncode == 2, told
        assert "has 3 CPUs on 2 nodes" in told

        job = start_score(tiny_home, address, "score.workers=3")
        deadline = time.monotonic() + 120
        while len(list(tiny_home.staging("tiny").glob("date=*/*/shards/*.json"))) < 3:
            assert job.poll() is None, job.communicate()[1]
            assert time.monotonic() < deadline
        os.kill(dying.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        told = job.communicate(timeout=200)[1]
        assert job.returncode == 0, told
        assert "3 workers on 2 nodes of the Ray cluster" in told
        refuse_strange_nodes(nodes.address, tmp_path, dead=dying.node_id)

    local = start_score(alone, "score.price_per_hour=0.5", "score.metrics_file=metrics/tiny.prom")
    told = local.communicate(timeout=200)[1]
    assert local.returncode == 0, told
    assert published_files(tiny_home) == published_files(alone)
    spent = Partition(tiny_home, "tiny", Date.fromisoformat(DAY)).publications()[-1]
    assert (spent.workers, spent.machines, spent.shards_scored) == (3, 2, 40)
    check_figures(alone, told)


def check_figures(home, told):
    """What is kept, told and measured of a run says the same."""
    spent = Partition(home, "tiny", Date.fromisoformat(DAY)).publications()[-1]
    assert list(spent.steps) == ["model", "survey", "start", "scoring", "stop", "publish"]
    assert sum(spent.worker_steps.values()) == pytest.approx(spent.worker_seconds, abs=0.01)
    assert (spent.rows_scored, spent.machines, spent.price_per_hour) == (160, 1, 0.5)
    assert describe_effort(spent) in told
    metrics = (home.root / "metrics/tiny.prom").read_text()
    for outcome, rows in (("scored", 157), ("quarantined", 3)):
        labels = f'date="{DAY}",outcome="{outcome}",task="tiny"'
        assert f"nightmill_rows_total{{{labels}}} {rows}.0" in metrics.splitlines()
    success = f'nightmill_last_success_timestamp_seconds{{date="{DAY}",task="tiny"}}'
    assert success in metrics


def refuse_strange_nodes(address, folder, *, dead):
    """Nodes that miss a file of ours, have other software or are dead are named before a run."""
    with ray_session(cpus=0, address=address), pytest.MonkeyPatch.context() as patch:
        # A node that was killed is listed until Ray's health check has failed.
        nodes = [node for node in worker_nodes() if node.id != dead]
        where = nodes[0].address
        gone = dataclasses.replace(nodes[0], id=dead)
        with pytest.raises(NodeDiedError, match=f"node {where} died before it answered"):
            node_check.check_nodes([*nodes, gone], shared=folder, files=[])
        hosts = node_check.check_nodes(nodes, shared=folder, files=[folder])
        assert hosts == {f"node {where}": this_host()}
        with pytest.raises(ConfigError, match=f"node {where} .* does not see {folder}/gone"):
            node_check.check_nodes(nodes, shared=folder, files=[folder / "gone"])
        ours = node_check.installed_software()
        patch.setattr(node_check, "installed_software", lambda: ours | {"nightmill": "another"})
        with pytest.raises(ArtifactError, match=f"node {where} .* instead of another"):
            node_check.check_nodes(nodes, shared=folder, files=[])
        assert not list(folder.glob(".probe-*"))
