"""What every node of a cluster must have before it scores: our software, and sight of our files."""

from __future__ import annotations

import logging
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.engines.host import this_host
from pipeline.engines.software import installed_software
from schemas.errors import ArtifactError, ConfigError, TransientError
from schemas.verification import KindOfHost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobs.cluster import Node

_TIMEOUT_S = 120.0
log = logging.getLogger(__name__)


class NodeDiedError(TransientError):
    """A node that was listed as alive died before it answered; the next list does not have it."""


def check_nodes(
    nodes: Sequence[Node], *, shared: Path, files: Sequence[Path | str]
) -> dict[str, KindOfHost]:
    """Makes sure that a worker on any node gives what one on this machine gives.

    Each node reports its versions, reads `files` and leaves a file in the folder `shared`, which
    is looked for from here. Answers of which kind each node is, by its name for people.

    Raises:
        ConfigError: a node does not see a file of ours, or we not its.
        ArtifactError: a node has other software.
        NodeDiedError: a node is dead by now.
        TransientError: a node does not answer.
    """
    ours = installed_software()
    hosts = {}
    with _probe_folder(shared) as probe:
        check = ray.remote(_look_around)
        asked = {
            node: check.options(
                num_cpus=0,
                max_retries=1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            ).remote(str(probe / node.id), [str(path) for path in files])
            for node in nodes
        }
        for node, reference in asked.items():
            found = _answer(node, reference)
            _require_sight(node, found["unseen"], probe)
            _require_software(node, found["software"], ours)
            hosts[f"node {node.address}"] = KindOfHost.model_validate(found["host"])
    log.info("%d nodes of the Ray cluster see the home and have the same software", len(nodes))
    return hosts


def _look_around(mark: str, files: list[str]) -> dict[str, Any]:
    """Runs on a node: what it has installed, and which of the files it does not see."""
    unseen = [path for path in files if not Path(path).exists()]
    try:
        Path(mark).write_text("seen", encoding="utf-8")
    except OSError:
        unseen.insert(0, str(Path(mark).parent))
    host = this_host().model_dump(mode="json")
    return {"software": installed_software(), "unseen": unseen, "host": host}


@contextmanager
def _probe_folder(shared: Path) -> Iterator[Path]:
    probe = shared / f".probe-{uuid.uuid4().hex}"
    probe.mkdir(parents=True)
    try:
        yield probe
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def _answer(node: Node, reference: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ray.get(reference, timeout=_TIMEOUT_S)
    except RayTaskError as error:
        # Its own code cannot fail, so that it could not be loaded there.
        reason = str(error).strip().splitlines()[-1]
        raise ArtifactError(
            f"node {node.address} cannot run Nightmill ({reason}); install there what is here"
        ) from error
    except (RayError, TimeoutError) as error:
        if not _is_alive(node):
            raise NodeDiedError(f"node {node.address} died before it answered") from error
        raise TransientError(
            f"node {node.address} does not answer ({type(error).__name__}); try again"
        ) from error
    return answer


def _is_alive(node: Node) -> bool:
    return any(found["NodeID"] == node.id and found["Alive"] for found in ray.nodes())


def _require_sight(node: Node, unseen: Sequence[str], probe: Path) -> None:
    ours = probe / node.id
    if not unseen and ours.exists():
        return
    what = ", ".join(unseen[:3]) or str(probe)
    raise ConfigError(
        f"node {node.address} of the Ray cluster does not see {what} as this one does; put the "
        f"home, the input and the model on storage that all nodes share under the same path"
    )


def _require_software(node: Node, found: dict[str, str], ours: dict[str, str]) -> None:
    differences = [
        f"{name} {found.get(name, 'missing')} instead of {version}"
        for name, version in ours.items()
        if found.get(name) != version
    ]
    if differences:
        raise ArtifactError(
            f"node {node.address} of the Ray cluster has {', '.join(differences[:5])}; scores "
            f"could differ, so install the same on all nodes"
        )
