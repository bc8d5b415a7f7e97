"""Damaged files of every kind through survey and reading; `make fuzz` does it for ten minutes."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pipeline.read import read_shard
from pipeline.source import local_source
from pipeline.survey import Survey, survey
from schemas.errors import ConfigError, DataContractError
from schemas.home import Home
from schemas.task import DataConfig

SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
MAX_EXAMPLE_S = 10.0
WORDS = (
    "a",
    "",
    "grün",
    "café €",
    'say "hi"',
    "two\nlines",
    "a,b\tc",
    "😀",
    "x" * 1500,
    "\r\n",
    "0",
)
PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}
INSERTS = (
    b'"', b'""', b"\0", b",", b"\t", b"\r", b"\n", b"\r\n", b"\xff", b"\xe9", b"\xed\xa0\x80",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"{", b"}", b"\\ud800", b"[" * 1200,
    b"\x1f\x8b\x08", b"BZh9", b"\x28\xb5\x2f\xfd", b"PAR1", b"NaN", b"9" * 5000,
)  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """One change at a place given as a fraction of the content."""

    kind: str
    place: float
    insert: bytes
    bit: int

    def apply(self, content: bytes) -> bytes:
        at = int(self.place * len(content))
        if self.kind == "flip" and content:
            at = min(at, len(content) - 1)
            return content[:at] + bytes([content[at] ^ 1 << self.bit]) + content[at + 1 :]
        if self.kind == "cut":
            return content[:at]
        if self.kind == "drop":
            return content[:at] + content[at + 1 + self.bit :]
        if self.kind == "splice":
            return content[:at] + content[at // 2 :]
        return content[:at] + self.insert + content[at:]


DAMAGE = st.builds(
    Damage,
    kind=st.sampled_from(["flip", "cut", "drop", "splice", "insert", "insert"]),
    place=st.floats(0, 1),
    insert=st.sampled_from(INSERTS),
    bit=st.integers(0, 7),
)
CASES = {
    "rows": st.lists(st.tuples(st.sampled_from("1234567"), st.sampled_from(WORDS)), max_size=12),
    "kind": st.sampled_from(["csv", "tsv", "jsonl", "parquet"]),
    "codec": st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-be", "gb18030"]),
    "declared": st.sampled_from(["auto", "auto", "auto", "utf-8", "utf-16", "cp1252", "cp932"]),
    "packing": st.sampled_from(["", "", *PACKERS]),
    "plain_damage": st.lists(DAMAGE, max_size=3),
    "packed_damage": st.lists(DAMAGE, max_size=2),
    "rows_per_shard": st.integers(1, 4),
}


def written(rows: list[tuple[str, str]], kind: str, codec: str) -> bytes:
    """A sound file of these rows."""
    if kind == "parquet":
        sink = io.BytesIO()
        ids, texts = [row[0] for row in rows], [row[1] for row in rows]
        table = {"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.string())}
        pq.write_table(pa.table(table), sink, row_group_size=5)
        return sink.getvalue()
    if kind == "jsonl":
        lines = [json.dumps({"id": number, "text": text}) for number, text in rows]
        return "".join(f"{line}\n" for line in lines).encode(codec, errors="replace")
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter="\t" if kind == "tsv" else ",")
    writer.writerows([("id", "text"), *rows])
    return out.getvalue().encode(codec, errors="replace")


def surveyed(path: Path, rows_per_shard: int, declared: str) -> Survey:
    data = DataConfig(
        incoming="x",
        encoding=declared,
        max_record_bytes=1024,
        id_column="id",
        text_columns=("text",),
    )
    return survey(
        [local_source(path)],
        data=data,
        home=Home(path.parent),
        rows_per_shard=rows_per_shard,
        spool=path.parent / "spool",
    )


def items_of(found: Survey) -> list[str]:
    items = []
    for shard in found.shards:
        mine = list(read_shard(shard))
        assert len(mine) == shard.rows
        items += mine
    (file,) = found.inputs
    assert [item.source_row for item in items] == list(range(file.rows))
    return [repr(item) for item in items]  # as text, for a NaN is not equal to itself


def check_laws(
    *, rows, kind, codec, declared, packing, plain_damage, packed_damage, rows_per_shard
) -> None:
    """Only planned errors; the same rows in any shards and on any rerun; bounded time."""
    content = written(rows, kind, codec)
    for damage in plain_damage:
        content = damage.apply(content)
    content = PACKERS[packing](content)
    for damage in packed_damage if packing else ():
        content = damage.apply(content)
    start = time.monotonic()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{kind}{packing}"
        path.write_bytes(content)
        try:
            found = surveyed(path, rows_per_shard, declared)
        except (DataContractError, ConfigError):
            return
        items = items_of(found)
        assert surveyed(path, rows_per_shard, declared) == found
        assert items_of(surveyed(path, 1000, declared)) == items
        if not plain_damage and not packed_damage and declared == "auto" and codec != "gb18030":
            assert len(items) == len(rows)
    assert time.monotonic() - start < MAX_EXAMPLE_S


SETTINGS = settings(
    deadline=None, suppress_health_check=list(HealthCheck), database=None, print_blob=True
)


@settings(SETTINGS, max_examples=150)
@given(**CASES)
def test_damaged_files_keep_the_laws(**case):
    check_laws(**case)


@pytest.mark.skipif(not SECONDS, reason="for `make fuzz`, which sets FUZZ_SECONDS")
@pytest.mark.timeout(0)
def test_damaged_files_keep_the_laws_for_as_long_as_asked():
    """Each round has a seed of its own, printed so that a find can be had again."""
    end = time.monotonic() + SECONDS
    rounds = random.SystemRandom()
    while time.monotonic() < end:
        number = rounds.randrange(2**32)
        print(f"seed {number}", flush=True)
        run = settings(SETTINGS, max_examples=500, phases=[Phase.generate, Phase.shrink])
        seed(number)(run(given(**CASES)(check_laws)))()
