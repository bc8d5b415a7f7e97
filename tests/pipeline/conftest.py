"""A published night that needs no model: a row that passes the contract is scored as its id."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline.plan import Plan, plan_partition
from pipeline.publish import Partition, reconcile
from pipeline.read import read_shard
from pipeline.replay import ReplayPlan, plan_replay
from pipeline.rows import RawRow, Rejected
from pipeline.tables import quarantine_table
from pipeline.validate import Validator
from schemas.fingerprint import digest_of
from schemas.manifest import Counters, ModelRef, PartitionManifest, Shard
from schemas.records import scores_schema
from schemas.task import QuarantineConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pipeline.staging import Staging
    from schemas.home import Home
    from schemas.manifest import ShardManifest
    from schemas.reasons import Reason
    from schemas.task import TaskConfig

DATE = dt.date(2026, 11, 28)
MODEL = ModelRef(name="tiny", version="1", digest="abc")


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The address of an S3 service on loopback."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_client(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of that service, which the environment now names with its credentials."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return boto3.client("s3", endpoint_url=s3_server)


def line(name: str, body: str) -> str:
    return json.dumps({"ticket_id": name, "subject": "", "body": body})


class PublishedNight:
    """The date 2026-11-28 of the tiny task; a text shorter than `min_chars` is rejected."""

    def __init__(self, home: Home, task: TaskConfig) -> None:
        self.home, self.task = home, task
        self.partition = Partition(home, task.name, DATE)
        self.input = home.root / "incoming" / "tiny" / f"date={DATE}" / "a.jsonl"

    def write(self, lines: Sequence[str]) -> None:
        self.input.parent.mkdir(parents=True, exist_ok=True)
        self.input.write_text("\n".join(lines) + "\n")

    def plan(self, *, min_chars: int, **data: Any) -> Plan:
        contract = self.task.contract.model_copy(update={"min_text_chars": min_chars})
        changed = {"contract": contract, "data": self.task.data.model_copy(update=data)}
        return plan_partition(
            self.task.model_copy(update=changed), DATE, home=self.home, model=MODEL,
            cleaner_version="1-c", spool=self.partition.spool,
        )  # fmt: skip

    def publish(self, plan: Plan) -> PartitionManifest:
        done = self.score(plan, plan.survey.shards, self.partition.staging(plan.run))
        manifest = plan.manifest(done, reconcile(plan.survey.shards, done, what="tiny"))
        self.partition.publish(manifest, keep_runs=1)
        return manifest

    def replay(self, *reasons: Reason, min_chars: int = 1, **data: Any) -> ReplayPlan:
        plan = self.plan(min_chars=min_chars, **data)
        return plan_replay(plan, self.partition.published(), reasons, partition=self.partition)

    def score(
        self, plan: Plan, shards: Sequence[Shard], staging: Staging
    ) -> dict[int, ShardManifest]:
        for shard in shards:
            scored, rejected = self.outcome(plan, shard)
            by_reason: dict[str, int] = {}
            for row in rejected:
                by_reason[row.reason] = by_reason.get(row.reason, 0) + 1
            staging.write(
                shard,
                scores=pa.table({"record_id": pa.array(scored, pa.string())}),
                quarantine=quarantine_table(
                    rejected,
                    policy=plan.task.quarantine,
                    contract_version=plan.task.contract_version,
                ),
                counters=Counters(
                    rows_read=shard.rows_to_do,
                    rows_scored=len(scored),
                    rows_quarantined=len(rejected),
                    quarantined_by_reason=by_reason,
                    texts_inferred=len(scored),
                ),
            )
        return staging.finished(shards)

    @staticmethod
    def outcome(plan: Plan, shard: Shard) -> tuple[list[str], list[Rejected]]:
        """Ids of the rows that pass the contract, and the rejected rows."""
        validator = Validator(plan.task.data, plan.task.contract)
        scored: list[str] = []
        rejected: list[Rejected] = []
        for row in read_shard(shard):
            checked = validator.check(row, DATE) if isinstance(row, RawRow) else row
            if isinstance(checked, Rejected):
                rejected.append(checked)
            else:
                scored.append(checked.record_id)
        return scored, rejected


@pytest.fixture
def lines() -> list[str]:
    """Shards of ten: 1, 3 and 12 are short, 4 is blank, 11 repeats an id, 2 cannot be read."""
    lines = [line(f"t{number}", "long enough") for number in range(25)]
    lines[1], lines[3], lines[12] = line("t1", "hi"), line("t3", "yo"), line("t12", "ok")
    lines[2], lines[4], lines[11] = '{"ticket_id": "t20"', line("t4", " "), line("t0", "twice")
    return lines


@pytest.fixture
def night(home: Home, tiny_task: TaskConfig, lines: list[str]) -> PublishedNight:
    """The night as it was scored with at least five characters a text."""
    night = PublishedNight(home, tiny_task)
    night.write(lines)
    night.publish(night.plan(min_chars=5))
    return night


@pytest.fixture(name="publish_rows")
def publish_rows_fixture(home: Home, tiny_task: TaskConfig) -> Callable[..., PartitionManifest]:
    """Publishes record ids with a label of the head `queue`, two rows a file."""

    def publish(labels: Mapping[str, str], **options: Any) -> PartitionManifest:
        return publish_rows(home, tiny_task, labels, **options)

    return publish


def publish_rows(
    home: Home,
    task: TaskConfig,
    labels: Mapping[str, str],
    *,
    date: dt.date = DATE,
    keep_runs: int = 1,
) -> PartitionManifest:
    """Publishes a night of scores without a model."""
    partition = Partition(home, task.name, date)
    fingerprint = digest_of([dict(labels), date.isoformat()])
    staging, ids = partition.staging(fingerprint[:16]), list(labels)
    done = []
    for index, start in enumerate(range(0, max(len(ids), 1), 2)):
        some = ids[start : start + 2]
        rows = [score_row(task, name, labels[name], date, fingerprint[:16]) for name in some]
        shard = Shard(
            index=index, name="a.csv", path="a.csv", format="csv", start=index, stop=index + 1,
            first_row=start, rows=len(some),
        )  # fmt: skip
        done.append(
            staging.write(
                shard,
                scores=pa.Table.from_pylist(rows, schema=scores_schema(task.heads)),
                quarantine=quarantine_table([], policy=QuarantineConfig(), contract_version="c"),
                counters=Counters(rows_read=len(some), rows_scored=len(some)),
            )
        )
    manifest = PartitionManifest(
        task=task.name, date=date.isoformat(), run=fingerprint[:16], fingerprint=fingerprint,
        model=MODEL, config_digest="c", cleaner_version="1-c", inputs=(),
        counters=sum((shard.counters for shard in done), start=Counters()),
        scores=tuple(shard.scores for shard in done),
        quarantine=tuple(shard.quarantine for shard in done),
    )  # fmt: skip
    partition.publish(manifest, keep_runs=keep_runs)
    return manifest


def score_row(task: TaskConfig, name: str, label: str, date: dt.date, run: str) -> dict[str, Any]:
    """One row of the scores schema."""
    row: dict[str, Any] = {
        "record_id": name, "decision": "auto", "lang": "en", "n_windows": 1,
        "spans": [{"start": 0, "end": 4}], "truncated": False, "flags": [], "text_hash": "0" * 32,
        "source_file": "a.csv", "source_row": 0, "partition_date": date, "model_name": "tiny",
        "model_version": "1", "model_digest": "d", "cleaner_version": "1-c", "run_id": run,
    }  # fmt: skip
    for head, config in task.heads.items():
        row |= {
            head: label if config.kind == "single" else [], f"{head}_confidence": 0.5,
            f"{head}_scores": [0.5] * len(config.labels), f"{head}_window": 0,
        }  # fmt: skip
    return row
