"""Published nights as a Delta Lake table: a night is one commit, seen whole or not at all."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import ConfigError, TransientError
from schemas.records import scores_schema

try:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import DeltaError, SchemaMismatchError, TableNotFoundError
except ImportError as error:
    raise ConfigError(
        "a sink of format delta needs the package deltalake; `pip install 'nightmill[delta]'`"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pipeline.sinks import LocalNight
    from schemas.task import HeadConfig

_PARTITION_COLUMN = "partition_date"
_REFUSED = re.compile(
    r"\b40[0134]\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket"
    r"|PermissionDenied|Permission denied|credential",
    re.IGNORECASE,
)


class DeltaSink:
    """The table `LOCATION/TASK`, partitioned by date, with the columns of the scores."""

    def __init__(
        self, location: str, heads: Mapping[str, HeadConfig], *, resolve: Callable[[str], Path]
    ) -> None:
        is_remote = "://" in location
        self._root = location.rstrip("/") if is_remote else str(resolve(location))
        self._options = _storage_options() if is_remote else {}
        self._schema = scores_schema(heads)

    def put(self, night: LocalNight) -> bool:
        """Replaces the date's rows in one commit; False where the run's commit is the last one."""
        address = f"{self._root}/{night.partition.task}"
        date = night.partition.date.isoformat()
        application, version = f"nightmill/{night.partition.task}/{date}", _version(night)
        with _errors_named(address):
            if self._committed(address, application) == version:
                return False
            write_deltalake(
                address,
                pa.RecordBatchReader.from_batches(self._schema, self._batches(night)),
                mode="overwrite",
                predicate=f"{_PARTITION_COLUMN} = '{date}'",
                partition_by=[_PARTITION_COLUMN],
                storage_options=self._options,
                commit_properties=CommitProperties(
                    custom_metadata={"nightmill.run": night.manifest.run, "nightmill.date": date},
                    app_transactions=[Transaction(application, version)],
                ),
            )
        return True

    def _committed(self, address: str, application: str) -> int | None:
        try:
            table = DeltaTable(address, storage_options=self._options)
        except TableNotFoundError:
            return None
        version: int | None = table.transaction_version(application)
        return version

    def _batches(self, night: LocalNight) -> Iterator[pa.RecordBatch]:
        for path in night.score_files:
            yield from pq.read_table(path, partitioning=None).cast(self._schema).to_batches()


def _version(night: LocalNight) -> int:
    """The run as the number that a Delta transaction has; equal runs, equal numbers."""
    return int(night.manifest.run[:15], 16)


def _storage_options() -> dict[str, str]:
    """What the environment does not say by itself: commits by conditional PUT, plain HTTP."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    options: dict[str, str] = {"aws_conditional_put": "etag"}
    if endpoint:
        options["aws_endpoint_url"] = endpoint
    if endpoint.startswith("http://"):
        options["aws_allow_http"] = "true"
    if region:
        options["aws_region"] = region
    return options


@contextmanager
def _errors_named(address: str) -> Iterator[None]:
    """Errors of Delta and of the storage behind it as ours, with the table's address."""
    try:
        yield
    except (SchemaMismatchError, pa.ArrowInvalid) as error:
        raise ConfigError(
            f"{address}: the table has other columns than the scores, such as after heads were "
            f"changed; give the sink another location, or migrate the table"
        ) from error
    except (DeltaError, OSError, ValueError) as error:
        raise _classified(error, address) from error


def _classified(error: Any, address: str) -> ConfigError | TransientError:
    text = " ".join(str(error).split())
    if isinstance(error, PermissionError) or _REFUSED.search(text):
        return ConfigError(f"{address}: refused ({text[:200]}); correct the address or credentials")
    return TransientError(f"{address}: cannot be written now ({text[:200]}); run again")
