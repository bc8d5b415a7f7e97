"""How a partition is scored and where it goes: the section `score` of a task file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.address import Address
from schemas.section import Section


class CacheConfig(Section):
    """Answers kept from night to night, by text and model; safe to delete at any time."""

    enabled: bool = False
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30


class CascadeConfig(Section):
    """A small model that answers what it is sure of; the rest goes to the task's model.

    `model` is the small one's address. Its threshold is chosen on the validation texts so that the
    macro-F1 of both together is at most `max_metric_loss` under that of the large one alone.
    """

    model: str
    max_metric_loss: Annotated[float, Field(ge=0)] = 0.005


class SinkConfig(Section):
    """One more place where a published night goes: `location` is a folder or `s3://` address."""

    format: Literal["parquet", "delta"] = "parquet"
    location: Address


class ScoreConfig(Section):
    """How a partition is scored, where it goes, and how many superseded runs stay on disk.

    Workers are as many as the CPUs of this process's cgroup, less `io_cpus`, unless set. `batching`
    `auto` is measured on the host that scores. A shard that ended its worker `max_attempts` times
    is halved until the row that does it stands alone. `max_batch_tokens` bounds a GPU's batch;
    `cuda_graphs` has a GPU start the kernels of a batch as one. `unverified: allow` scores on CPUs
    of another kind than those on which the bundle has passed its gates.
    """

    model: str | None = None
    rows_per_shard: Annotated[int, Field(ge=1)] = 500
    workers: Annotated[int, Field(ge=1)] | None = None
    io_cpus: Annotated[int, Field(ge=0)] = 0
    ray_address: str | None = None
    device: Literal["cpu", "gpu"] = "cpu"
    unverified: Literal["refuse", "allow"] = "refuse"
    batching: Literal["auto", "one", "equal_length"] = "auto"
    max_batch_tokens: Annotated[int, Field(ge=64)] = 16_384
    cuda_graphs: bool = False
    max_attempts: Annotated[int, Field(ge=1)] = 2
    max_worker_mib: Annotated[int, Field(ge=256)] | None = None
    no_progress_timeout_s: Annotated[int, Field(ge=1)] = 600
    keep_runs: Annotated[int, Field(ge=0)] = 1
    cache: CacheConfig = CacheConfig()
    cascade: CascadeConfig | None = None
    sinks: tuple[SinkConfig, ...] = ()
    price_per_hour: Annotated[float, Field(ge=0)] | None = None
    metrics_file: str | None = None

    @model_validator(mode="after")
    def _graphs_are_of_a_gpu(self) -> Self:
        if self.cuda_graphs and self.device != "gpu":
            raise ValueError("cuda_graphs is for device: gpu; set that too, or leave it out")
        return self
