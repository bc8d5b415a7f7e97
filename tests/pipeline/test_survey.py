from __future__ import annotations

import hashlib
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.source import local_source
from pipeline.survey import Survey, find_inputs, survey
from schemas.errors import ConfigError, DataContractError
from schemas.home import Home
from schemas.task import DataConfig

DAY = date(2026, 11, 28)


def survey_of(tmp_path, *names, rows_per_shard=2, **data) -> Survey:
    config = DataConfig(incoming="in/*", **{"text_columns": ("text",), **data})
    return survey(
        [local_source(tmp_path / name) for name in names],
        data=config,
        home=Home(tmp_path),
        rows_per_shard=rows_per_shard,
        spool=tmp_path / "spool",
    )


def paths_of(sources):
    return tuple(source.path for source in sources)


def test_csv_shards_are_byte_ranges(tmp_path):
    content = b'\xef\xbb\xbfid,text\r\n1,"a\nb"\r\n\r\n2,c\n3,d'
    (tmp_path / "a.csv").write_bytes(content)
    found = survey_of(tmp_path, "a.csv")
    assert [content[s.start : s.stop] for s in found.shards] == [b'1,"a\nb"\r\n\r\n2,c\n', b"3,d"]
    assert [(s.index, s.first_row, s.rows) for s in found.shards] == [(0, 0, 2), (1, 2, 1)]
    (file,) = found.inputs
    assert (file.name, file.rows, file.bytes) == ("a.csv", 3, len(content))
    assert file.sha256 == hashlib.sha256(content).hexdigest()


def test_later_rows_with_an_id_are_duplicates_across_files_and_types(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n2,b\n 1 ,c\n")
    (tmp_path / "b.jsonl").write_text('{"id": 2, "text": "x"}\n{"id": 3.0, "text": "y"}\n')
    found = survey_of(tmp_path, "a.csv", "b.jsonl", id_column="id")
    assert [s.repeats for s in found.shards] == [{}, {"id": (2,)}, {"id": (0,)}]


def test_a_broken_row_claims_no_id(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a,too many\n1,b\n")
    assert survey_of(tmp_path, "a.csv", id_column="id").shards[0].repeats == {}


def test_an_empty_file_has_no_shards(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"")
    (tmp_path / "b.jsonl").write_bytes(b"\n")
    found = survey_of(tmp_path, "a.csv", "b.jsonl")
    assert found.shards == ()
    assert [file.rows for file in found.inputs] == [0, 0]


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "id,txt\n1,a\n"), ("a.jsonl", '{"id": 1, "txt": "a"}\n')]
)
def test_a_missing_column_is_named_with_those_found(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(
        DataContractError, match=rf"{name}: column 'text' is missing \(did you mean 'txt'"
    ) as error:
        survey_of(tmp_path, name)
    assert "columns found: id, txt" in str(error.value)


def test_a_column_that_is_there_twice_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("text,text\na,b\n")
    with pytest.raises(DataContractError, match="column 'text' is there twice"):
        survey_of(tmp_path, "a.csv")


def test_parquet_shards_are_row_ranges(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), tmp_path / "a.parquet")
    shards = survey_of(tmp_path, "a.parquet").shards
    assert [(s.start, s.stop, s.rows) for s in shards] == [(0, 2, 2), (2, 3, 1)]


@pytest.mark.parametrize("damage", ["cut", "page", "empty"])
def test_a_damaged_parquet_file_is_named(tmp_path, damage):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(2000)]}), path, compression="zstd")
    content = path.read_bytes()
    broken = {
        "cut": content[: len(content) // 2],
        "page": content[:60] + b"\xff" * 400 + content[460:],
        "empty": b"",
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(DataContractError, match=r"a\.parquet.*corrupted or cut off"):
        survey_of(tmp_path, "a.parquet")


def test_format_goes_by_ending_unless_it_is_set(tmp_path):
    (tmp_path / "a.txt").write_text("text\na\n")
    with pytest.raises(ConfigError, match=r"ending '\.txt' is not known"):
        survey_of(tmp_path, "a.txt")
    assert survey_of(tmp_path, "a.txt", format="csv").inputs[0].rows == 1


def test_find_inputs_by_glob_folder_and_file(tmp_path):
    home = Home(tmp_path / "ho[m]e")
    folder = home.root / "in" / "date=2026-11-28"
    folder.mkdir(parents=True)
    for name in ("b.csv", "a.csv", "notes.md", ".c.csv"):
        (folder / name).touch()
    files = (folder / "a.csv", folder / "b.csv")
    assert paths_of(find_inputs("in/date={date}/*.csv", home, date=DAY)) == files
    assert paths_of(find_inputs("in/date={date}", home, date=DAY)) == files
    assert paths_of(find_inputs(str(folder / "a.csv"), home, date=None)) == files[:1]


def test_find_inputs_says_what_is_missing(tmp_path):
    home = Home(tmp_path)
    with pytest.raises(DataContractError, match=r"date 2026-11-28: nothing matches .*/2026-11-28"):
        find_inputs("in/{date}/*.csv", home, date=DAY)
    with pytest.raises(ConfigError, match=r"expected a local path or one of s3://, hf://"):
        find_inputs("ftp://host/*.csv", home, date=DAY)
    with pytest.raises(ConfigError, match="needs a date"):
        find_inputs("in/{date}", home, date=None)


def test_a_name_outside_of_the_home_is_the_whole_path(tmp_path):
    (tmp_path / "a.csv").write_text("text\na\n")
    data = DataConfig(incoming="x", text_columns=("text",))
    found = survey(
        [local_source(tmp_path / "a.csv")],
        data=data,
        home=Home(tmp_path / "h"),
        rows_per_shard=9,
        spool=tmp_path / "spool",
    )
    assert found.inputs[0].name == (tmp_path / "a.csv").as_posix()


def test_columns_that_share_a_name_are_an_error_in_parquet_too(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["text", "n", "n"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataContractError, match=r"a\.parquet: column 'n' is there twice"):
        survey_of(tmp_path, "a.parquet")


def test_a_truncated_parquet_file_is_an_error_and_names_the_file(tmp_path):
    pq.write_table(pa.table({"text": ["a"] * 1000}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[:-1])
    with pytest.raises(DataContractError, match=r"a\.parquet: not readable as Parquet"):
        survey_of(tmp_path, "a.parquet")


def test_repeats_are_told_by_column_over_files_and_shards(tmp_path):
    (tmp_path / "a.csv").write_text("id,text,mail\n1,a,m\n2,b,n\n3,c,m\n")
    (tmp_path / "b.csv").write_text("id,text,mail\n3,d,o\n4,e,n\n1,f,\n5,g,\n")
    found = survey(
        [local_source(tmp_path / name) for name in ("a.csv", "b.csv")],
        data=DataConfig(incoming="x", id_column="id", text_columns=("text",)),
        home=Home(tmp_path),
        rows_per_shard=2,
        spool=tmp_path / "spool",
        unique_columns=("mail",),
    )
    assert [shard.repeats for shard in found.shards] == [
        {},
        {"mail": (2,)},
        {"id": (0,), "mail": (1,)},
        {"id": (2,)},
    ]


def test_an_unknown_encoding_of_bytes_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("text\na\n")
    with pytest.raises(ConfigError, match="'hex' is no encoding of text files"):
        survey_of(tmp_path, "a.csv", encoding="hex")
