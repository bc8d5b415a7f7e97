from __future__ import annotations

import bz2
import gzip
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.engines import parquet_rows
from pipeline.read import read_shard
from pipeline.rows import RawRow
from pipeline.source import local_source
from pipeline.spool import temporary_spool
from pipeline.survey import survey
from schemas.errors import DataContractError
from schemas.home import Home
from schemas.task import DataConfig


def zst(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zst}


def surveyed(path, *, rows_per_shard=2, **data):
    return survey(
        [local_source(path)],
        data=DataConfig(incoming="x", **{"text_columns": ("text",), **data}),
        home=Home(path.parent),
        rows_per_shard=rows_per_shard,
        spool=path.parent / "spool",
    )


def outcomes(found):
    rows = [row for shard in found.shards for row in read_shard(shard)]
    assert [row.source_row for row in rows] == list(range(found.inputs[0].rows))
    return [row.values["text"] if isinstance(row, RawRow) else str(row.reason) for row in rows]


def outcomes_of(path, content: bytes, **options):
    path.write_bytes(content)
    return outcomes(surveyed(path, **options))


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_file_is_read_from_a_plain_copy(tmp_path, kind):
    path = tmp_path / f"a.csv.{kind}"
    content = PACKERS[kind](b"id,text\n1,a\n2,b\n3,c\n")
    assert outcomes_of(path, content) == ["a", "b", "c"]
    found = surveyed(path)
    (file,) = found.inputs
    assert (file.name, file.format, file.compression) == (path.name, "csv", kind)
    assert (file.bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert {shard.path for shard in found.shards} == {
        str(path) for path in (tmp_path / "spool").iterdir()
    }
    assert surveyed(path).shards == found.shards


@pytest.mark.parametrize("kind", PACKERS)
def test_members_one_after_another_are_one_file(tmp_path, kind):
    pack = PACKERS[kind]
    content = pack(b"text\na\n") + pack(b"b\n") + pack(b"c\n")
    assert outcomes_of(tmp_path / f"a.csv.{kind}", content) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", PACKERS)
def test_a_truncated_compressed_file_gives_the_rows_before_the_cut(tmp_path, kind):
    pack = PACKERS[kind]
    whole, cut = pack(b'{"text": "a"}\n{"text": "b"}\n'), pack(b'{"text": "c"}\n' * 1000)
    path = tmp_path / f"a.jsonl.{kind}"
    for missing in (1, 4, len(cut)):
        found_rows = outcomes_of(path, whole + cut[: len(cut) - missing])
        if missing == len(cut):
            assert found_rows == ["a", "b"]
        else:
            assert found_rows[:2] == ["a", "b"]
            assert set(found_rows[2:-1]) <= {"c"}
            assert found_rows[-1] == "truncated_file"
    path.write_bytes(whole + cut[:-4])
    found = surveyed(path)
    assert [shard.truncated for shard in found.shards][-2:] == [False, True]


def test_a_cut_at_a_rows_end_still_leaves_one_rejected_row(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n', mtime=0)[:-8])  # all but checksum and length
    found = surveyed(path)
    assert outcomes(found) == ["a", "truncated_file"]
    (last,) = [row for row in read_shard(found.shards[0]) if not isinstance(row, RawRow)]
    assert (last.raw, last.stage) == (b"", "read")


def test_a_damaged_checksum_is_told_as_a_cut(tmp_path):
    packed = bytearray(gzip.compress(b"text\na\n"))
    packed[-6] ^= 1
    assert outcomes_of(tmp_path / "a.csv.gz", bytes(packed)) == ["a", "truncated_file"]


def test_a_cut_inside_the_header_is_an_error(tmp_path):
    path = tmp_path / "a.csv.gz"
    for content in (b"", gzip.compress(b"te")[:-8]):
        path.write_bytes(content)
        with pytest.raises(DataContractError, match=r"header cannot be read: the file is cut off"):
            surveyed(path)


@pytest.mark.parametrize("kind", PACKERS)
def test_a_file_that_is_not_compressed_as_it_says_is_an_error(tmp_path, kind):
    path = tmp_path / f"a.csv.{kind}"
    path.write_bytes(b"text\na\n")
    with pytest.raises(DataContractError, match=rf"not compressed as its ending \.{kind} says"):
        surveyed(path)


def test_a_truncated_compressed_parquet_file_is_an_error(tmp_path):
    pq.write_table(pa.table({"text": ["a"] * 1000}), tmp_path / "p.parquet")
    path = tmp_path / "a.parquet.gz"
    packed = gzip.compress((tmp_path / "p.parquet").read_bytes())
    assert len(outcomes_of(path, packed)) == 1000
    path.write_bytes(packed[:-100])
    with pytest.raises(DataContractError, match=r"a\.parquet\.gz.*corrupted or cut off"):
        surveyed(path)


ACCENTS = "id,text\n1,grün\n2,café €\n3,naïve\n4,plain\n"


@pytest.mark.parametrize(
    ("codec", "name", "guessed"),
    [
        ("utf-8", "utf-8", False),
        ("utf-8-sig", "utf-8", False),
        ("utf-16", "utf-16", False),
        ("utf-16-le", "utf-16-le", True),
        ("utf-16-be", "utf-16-be", True),
        ("utf-32", "utf-32", False),
        ("cp1252", "cp1252", True),
    ],
)
def test_an_encoding_is_detected_and_recorded(tmp_path, codec, name, guessed):
    path = tmp_path / "a.csv"
    path.write_bytes(ACCENTS.encode(codec))
    found = surveyed(path)
    assert outcomes(found) == ["grün", "café €", "naïve", "plain"]
    (file,) = found.inputs
    assert (file.encoding, file.encoding_guessed) == (name, guessed)
    assert len(found.guesses) == guessed
    assert (found.shards[0].path == str(path)) == (name == "utf-8")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_told_in_scripts_far_from_ascii(tmp_path, codec):
    texts = ["这个产品的质量非常好，我很满意。" * 3, "配送がとても遅いです。" * 4]
    path = tmp_path / "a.csv"
    path.write_bytes(
        ("id,text\n" + "".join(f"{i},{t}\n" for i, t in enumerate(texts))).encode(codec)
    )
    found = surveyed(path)
    assert outcomes(found) == texts
    assert found.inputs[0].encoding == codec


def test_a_guess_is_a_sentence_that_names_file_and_mend(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(ACCENTS.encode("cp1252"))
    assert surveyed(path).guesses == (
        "a.csv is not UTF-8: read as cp1252, which is a guess; set data.encoding if it is another",
    )


def test_a_declared_code_page_is_used_as_it_is(tmp_path):
    path = tmp_path / "a.csv"
    text = "text\nŁódź\nzażółć\n"
    path.write_bytes(text.encode("cp1250"))
    found = surveyed(path, encoding="cp1250")
    assert outcomes(found) == ["Łódź", "zażółć"]
    assert not found.inputs[0].encoding_guessed


def test_a_few_damaged_rows_do_not_make_a_code_page(tmp_path):
    content = "text\ngrün\nnaïve\n".encode() + b"caf\xe9\n" + "über\n".encode()
    assert outcomes_of(tmp_path / "a.csv", content) == ["grün", "naïve", "invalid_encoding", "über"]
    assert outcomes_of(tmp_path / "a.csv", b"text\nok\ncaf\xe9\nna\xefve\n") == [
        "ok",
        "invalid_encoding",
        "invalid_encoding",
    ]


def test_evidence_far_into_the_file_counts(tmp_path):
    content = b"text\n" + b"x" * 99 + b"\n" + b"ascii only\n" * 200_000 + b"caf\xe9\n" * 5
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert surveyed(path, rows_per_shard=100_000).inputs[0].encoding == "cp1252"


def test_a_byte_unknown_to_the_code_page_costs_one_row_and_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\ncaf\xe9\nbad \x81\nfine\n")
    found = surveyed(path, encoding="cp1252")
    assert outcomes(found) == ["café", "invalid_encoding", "fine"]
    rejected = [row for shard in found.shards for row in read_shard(shard)][1]
    assert rejected.detail == "byte 0x81 at position 4"


def test_an_odd_last_byte_of_utf16_costs_one_row(tmp_path):
    path = tmp_path / "a.csv"
    assert outcomes_of(path, "text\na\nb\n".encode("utf-16") + b"c") == [
        "a",
        "b",
        "invalid_encoding",
    ]


def test_half_a_character_in_utf16_costs_one_row(tmp_path):
    content = "text\na\n".encode("utf-16") + b"\x3d\xd8" + "\nb 😀\n".encode("utf-16-le")
    assert outcomes_of(tmp_path / "a.csv", content) == ["a", "invalid_encoding", "b 😀"]


def test_parquet_with_a_large_row_group_is_cut_into_small_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rows, "_LARGE_GROUP_BYTES", 100)
    path = tmp_path / "a.parquet"
    values = [f"text {number}" for number in range(1000)]
    table = pa.table({"text": pa.array(values), "kind": pa.array(values).dictionary_encode()})
    pq.write_table(table, path)
    found = surveyed(path, rows_per_shard=300)
    assert outcomes(found) == values
    copy = pq.ParquetFile(found.shards[0].path)
    groups = [copy.metadata.row_group(index).num_rows for index in range(copy.num_row_groups)]
    assert groups == [300, 300, 300, 100]
    assert copy.schema_arrow.types == table.schema.types


def test_a_plain_file_leaves_no_spool(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\na\n")
    surveyed(path)
    assert not (tmp_path / "spool").exists()


def test_a_temporary_spool_is_gone_afterwards(tmp_path):
    with temporary_spool(Home(tmp_path), "tickets") as spool:
        (spool / "a.csv").touch()
    assert not spool.exists()


def test_a_temporary_spool_of_a_job_that_was_killed_goes_with_the_next_one(tmp_path):
    home = Home(tmp_path)
    killed, begun = (home.staging("tickets") / f"inputs-{name}" for name in ("killed", "begun"))
    for folder in (killed, begun):
        folder.mkdir(parents=True)
        (folder / "a.csv").touch()
    (killed / ".lock").touch()
    with temporary_spool(home, "tickets") as first, temporary_spool(home, "tickets") as second:
        assert first.exists()
        assert second.exists()
        assert not killed.exists()
        assert begun.exists()  # by a job that has not come to its lock yet
