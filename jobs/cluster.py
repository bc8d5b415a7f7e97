"""A cluster before a run: how many workers it has room for, and whether all of it is as here."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.autoscaler.sdk import request_resources

from jobs.node_check import NodeDiedError, check_nodes
from jobs.ray_session import LOCAL, ray_address, ray_session
from pipeline.engines.host import this_host, usable_cpus
from schemas.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from schemas.task import ScoreConfig
    from schemas.verification import KindOfHost

_POLL_S = 1.0  # between looks at what an autoscaler has brought
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Node:
    """A machine of the cluster that can hold workers."""

    id: str
    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True)
class Pool:
    """Workers that score, the machines that hold them, and what kind each of these is of."""

    workers: int
    machines: int
    hosts: Mapping[str, KindOfHost]


@contextmanager
def scoring_pool(
    score: ScoreConfig, *, shards: int, shared: Path, files: Sequence[Path | str]
) -> Iterator[Pool]:
    """A Ray session with room for the workers of a run over `shards` shards.

    On a cluster each node must read and write the folder `shared` and see `files`.

    Raises:
        ConfigError: there is no room, or a node does not see what it must.
        ArtifactError: a node has other software.
        TransientError: Ray does not answer, or promised nodes do not come.
    """
    with scoring_session(score):
        if ray_address(score.ray_address) == LOCAL:
            workers = min(_local_workers(score), _local_gpus(score), shards)
            yield Pool(workers, machines=1, hosts={"this host": this_host()})
            return
        with _checked_workers(score, shards=shards, shared=shared, files=files) as pool:
            yield pool


@contextmanager
def _checked_workers(
    score: ScoreConfig, *, shards: int, shared: Path, files: Sequence[Path | str]
) -> Iterator[Pool]:
    """Workers on nodes that have all answered; planned anew where one of them died meanwhile.

    Ray lists a dead node as alive until its health check has failed, for some ten seconds.
    """
    while True:
        with cluster_workers(score, shards=shards) as workers:
            nodes = worker_nodes()
            try:
                hosts = check_nodes(nodes, shared=shared, files=files)
            except NodeDiedError as error:
                log.warning("%s; workers are planned without it", error)
                continue
            log.info("%d workers on %d nodes of the Ray cluster", workers, len(nodes))
            yield Pool(workers, machines=min(workers, len(nodes)), hosts=hosts)
            return


@contextmanager
def scoring_session(score: ScoreConfig) -> Iterator[None]:
    """The Ray session of a scoring job; one that is open already is used and stays open.

    Raises:
        ConfigError: Ray's address cannot be used.
        ArtifactError: the cluster has other software.
        TransientError: Ray does not answer.
    """
    if ray.is_initialized():
        yield
        return
    with ray_session(cpus=_local_workers(score), address=score.ray_address):
        yield


def _local_workers(score: ScoreConfig) -> int:
    return score.workers or max(1, usable_cpus() - score.io_cpus)


def _local_gpus(score: ScoreConfig) -> int:
    """The most workers that this machine's GPUs allow; no bound where none is asked for.

    Raises:
        ConfigError: GPUs are asked for, and Ray finds none.
    """
    if score.device == "cpu":
        return sys.maxsize
    gpus = sum(node.gpus for node in worker_nodes())
    if not gpus:
        raise ConfigError(
            "score.device=gpu, but Ray finds no GPU on this machine; set score.device=cpu, or "
            "score.ray_address to a cluster that has some"
        )
    return gpus


def worker_nodes() -> list[Node]:
    """The living nodes that have CPUs to give; a head without any only coordinates."""
    nodes = [_node(found) for found in ray.nodes() if found["Alive"]]
    return sorted((node for node in nodes if node.cpus), key=lambda node: (node.address, node.id))


def _node(found: dict[str, Any]) -> Node:
    cpus, gpus = (int(found["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
    return Node(found["NodeID"], found["NodeManagerAddress"], cpus, gpus)


@contextmanager
def cluster_workers(score: ScoreConfig, *, shards: int) -> Iterator[int]:
    """How many workers the cluster holds for a run; held back from scaling down meanwhile.

    They are `score.workers`, else as many as there are CPUs (or GPUs) now, less `score.io_cpus`. A
    pool of workers does not grow by itself while a run goes on, so what is asked for and can come
    is waited for here.

    Raises:
        ConfigError: more is asked for than there is or can be.
        TransientError: an autoscaler did not bring what it may within `no_progress_timeout_s`.
    """
    workers = min(score.workers or _free(worker_nodes(), score), shards)
    if workers < 1:
        raise ConfigError(f"{_room(score)}, which leaves none for a worker; lower score.io_cpus")
    _ask_for(workers, score)
    try:
        _wait_for(workers, score)
        yield workers
    finally:
        request_resources(num_cpus=0)


def _free(nodes: list[Node], score: ScoreConfig) -> int:
    cpus = sum(node.cpus for node in nodes) - score.io_cpus
    return min(cpus, sum(node.gpus for node in nodes)) if score.device == "gpu" else cpus


def _ask_for(workers: int, score: ScoreConfig) -> None:
    bundle = {"CPU": 1, "GPU": 1} if score.device == "gpu" else {"CPU": 1}
    request_resources(bundles=[*[bundle] * workers, *[{"CPU": 1}] * score.io_cpus])


def _wait_for(workers: int, score: ScoreConfig) -> None:
    deadline = time.monotonic() + score.no_progress_timeout_s
    told = False
    while _free(worker_nodes(), score) < workers:
        kind = "GPU" if score.device == "gpu" else "CPU"
        if _most(kind) < workers:
            raise ConfigError(
                f"{_room(score)}, but {workers} workers are asked for; lower score.workers or "
                f"score.io_cpus, or add nodes"
            )
        if time.monotonic() > deadline:
            raise TransientError(
                f"{_room(score)}; nodes for {workers} workers did not come within "
                f"{score.no_progress_timeout_s} s"
            )
        if not told:
            log.info("%s; asked the autoscaler for nodes for %d workers", _room(score), workers)
            told = True
        time.sleep(_POLL_S)


def _most(kind: str) -> float:
    """How much of a resource the autoscaler may bring; nothing where there is none."""
    # It has no public name; Ray Data and Ray Train ask in the same way.
    limits = ray._private.state.state.get_max_resources_from_cluster_config()
    return float((limits or {}).get(kind, 0))


def _room(score: ScoreConfig) -> str:
    nodes = worker_nodes()
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    extra = f" and {gpus} GPUs" if score.device == "gpu" else ""
    return (
        f"the Ray cluster has {cpus} CPUs{extra} on {len(nodes)} nodes, {score.io_cpus} of them "
        f"kept for reading and writing"
    )
