"""What a task submits: under which id, with which environment, and where its files lie."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from schemas.home import HOME_VARIABLE, Home

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

LEASE_VARIABLE = "NIGHTMILL_LEASE"
LEASE_SECONDS_VARIABLE = "NIGHTMILL_LEASE_S"
RAY_PYTHON_VARIABLE = "NIGHTMILL_RAY_PYTHON"
# All that travels from Airflow's environment; where it goes, other users of the cluster see it.
PASSED = (
    HOME_VARIABLE,
    "MLFLOW_TRACKING_URI",
    "MLFLOW_S3_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_EC2_METADATA_DISABLED",
    "HF_HUB_OFFLINE",
    "OPENLINEAGE_URL",
    "OPENLINEAGE_NAMESPACE",
    "OPENLINEAGE_DISABLED",
)
PASSED_PREFIXES = ("AIRFLOW_CTX_", "OPENLINEAGE__")
_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSWORD|CREDENTIAL|KEY", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?:secret|token|password|key)[^=&]*=", re.IGNORECASE)
_MAX_READABLE_CHARACTERS = 100  # the id names the job's log file, too


@dataclass(frozen=True, slots=True)
class RayOptions:
    """How a job runs on a Ray cluster.

    Args:
        lease_s: a job whose lease nobody renews this long ends itself. Longer than Airflow's
            first retry delay (1 to 2 minutes, as it doubles by chance), so that a retry finds
            the job alive.
        poll_s: between looks at the job's state.
        away_s: a cluster that does not answer this long is lost, and the task is tried again.
        num_cpus: CPUs that the job's own process holds; the workers it asks for come on top.
            With any of these three the process runs on whichever node has them, else on the head.
        memory_bytes: memory that the job's own process holds.
        resources: custom resources that the job's own process holds.
        environment: names of further variables that travel; never those of secrets.
        python: interpreter on the cluster; by default `NIGHTMILL_RAY_PYTHON`, else `python`.
        shared_lag_s: how long a file written on the cluster may take to be seen here.
    """

    lease_s: float = 180.0
    poll_s: float = 2.0
    away_s: float = 60.0
    num_cpus: float = 0
    memory_bytes: int = 0
    resources: Mapping[str, float] | None = None
    environment: tuple[str, ...] = ()
    python: str | None = None
    shared_lag_s: float = 30.0

    def interpreter(self) -> str:
        """The command that starts Python on the cluster."""
        return self.python or os.environ.get(RAY_PYTHON_VARIABLE) or "python"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose job it is.

    `base` is the same for all tries of a task in a run, `generation` for those between two
    clearings, and `owner` for one try.
    """

    base: str
    generation: str
    owner: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Mapping[str, Any], home: Home) -> Self:
        """The identity of the running try; the home keeps two Airflows on one cluster apart."""
        ti = context["ti"]
        names = {
            "dag_id": ti.dag_id,
            "task_id": ti.task_id,
            "map_index": str(ti.map_index),
            "run_id": ti.run_id,
        }
        digest = hashlib.sha256("\0".join([str(home.root), *names.values()]).encode())
        readable = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{ti.dag_id}-{ti.task_id}-{ti.run_id}")
        # Airflow raises max_tries when a task is cleared; a run that was deleted and made again
        # under its old id begins at another time.
        began = getattr(context.get("dag_run"), "start_date", None)
        return cls(
            base=f"{readable[:_MAX_READABLE_CHARACTERS]}-{digest.hexdigest()[:12]}",
            generation=f"{ti.max_tries} {began}",
            owner=str(ti.id),
            labels=names,
        )

    def submission_id(self, number: int) -> str:
        """The id of the first job, or of the one that follows when that cannot be joined."""
        return self.base if number == 1 else f"{self.base}-{number}"

    def number_of(self, submission_id: str) -> int:
        """The inverse of `submission_id`."""
        return int(submission_id.removeprefix(self.base).removeprefix("-") or 1)


def folder_of(home: Home, submission_id: str) -> Path:
    """Where a job's lease and result lie; safe to delete when its run is over."""
    return home.root / "ray-jobs" / submission_id


def environment_of(
    variables: Mapping[str, str], *, more: Iterable[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """What travels of `variables`, and the names of secrets that were to but do not."""
    names = [
        name
        for name in variables
        if name in PASSED or name in more or name.startswith(PASSED_PREFIXES)
    ]
    kept_back = [name for name in names if _is_secret(name, variables[name])]
    return {name: variables[name] for name in names if name not in kept_back}, kept_back


def _is_secret(name: str, value: str) -> bool:
    if _SECRET_NAME.search(name):
        return True
    return "://" in value and ("@" in urlsplit(value).netloc or bool(_SECRET_IN_URL.search(value)))
