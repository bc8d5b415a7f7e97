from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline import split
from pipeline.read import read_shard
from pipeline.rows import RawRow, Rejected
from pipeline.survey import survey
from schemas.errors import DataContractError
from schemas.home import Home
from schemas.task import DataConfig

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def rows_of(path, *, rows_per_shard=1000, id_column=None, text="text"):
    data = DataConfig(incoming="x", id_column=id_column, text_columns=(text,))
    found = survey(
        [path],
        data=data,
        home=Home(path.parent),
        rows_per_shard=rows_per_shard,
        spool=path.parent / "spool",
    )
    rows = []
    for shard in found.shards:
        items = list(read_shard(shard))
        assert len(items) == shard.rows
        rows += items
    assert len(rows) == found.inputs[0].rows
    assert [row.source_row for row in rows] == list(range(len(rows)))
    return rows


def outcome(row):
    return dict(row.values) if isinstance(row, RawRow) else str(row.reason)


def outcomes(path, content: bytes, **options):
    path.write_bytes(content)
    return [outcome(row) for row in rows_of(path, **options)]


def test_csv_values_are_strings_with_their_bytes(tmp_path):
    path = tmp_path / "a.csv"
    content = b'\xef\xbb\xbfid,text\r\n1,"a ""b""\r\nc, d"\n2,\n'
    assert outcomes(path, content) == [
        {"id": "1", "text": 'a "b"\r\nc, d'},
        {"id": "2", "text": ""},
    ]
    assert [row.raw for row in rows_of(path)] == [b'1,"a ""b""\r\nc, d"', b"2,"]


def test_a_row_with_another_number_of_fields_is_malformed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1\n2,a,b\n3,c\n")
    short, long, fine = rows_of(path)
    assert (short.reason, short.detail) == ("malformed_row", "got 1 fields, expected 2")
    assert (long.stage, long.detail) == ("read", "got 3 fields, expected 2")
    assert fine.values == {"id": "3", "text": "c"}


@pytest.mark.parametrize(
    "content",
    [
        b'id,text\n1,"open\n2,fine\n3,"also, fine"\n',
        b'id,text\n1,"open\n2,"fine"\n3,"also, fine"\n',
        b'"id","text"\n"1","open\n"2","fine"\n"3","also, fine"\n',
    ],
)
def test_an_unclosed_quote_costs_one_row(tmp_path, content):
    assert outcomes(tmp_path / "a.csv", content) == [
        "unclosed_quote",
        {"id": "2", "text": "fine"},
        {"id": "3", "text": "also, fine"},
    ]


def test_a_quote_open_at_the_end_of_the_file_costs_one_row(tmp_path):
    content = b'id,text\n1,a\n2,"open ""x""\n3,b\n4,c'
    expected = [
        {"id": "1", "text": "a"},
        "unclosed_quote",
        {"id": "3", "text": "b"},
        {"id": "4", "text": "c"},
    ]
    assert outcomes(tmp_path / "a.csv", content) == expected
    assert outcomes(tmp_path / "a.csv", content, rows_per_shard=1) == expected


def test_an_endless_quoted_field_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(split, "MAX_QUOTED_BYTES", 100)
    content = b'id,text\n1,"' + b"x\n" * 100 + b'"\n2,fine\n'
    rows = outcomes(tmp_path / "a.csv", content)
    assert rows[0] == "unclosed_quote"
    assert rows[-1] == {"id": "2", "text": "fine"}


def test_a_field_of_a_million_characters_is_read(tmp_path):
    (row,) = outcomes(tmp_path / "a.csv", b'text\n"' + b"x" * 1_000_000 + b'"\n')
    assert len(row["text"]) == 1_000_000


def test_bytes_that_are_not_utf8_cost_one_row(tmp_path):
    assert outcomes(tmp_path / "a.csv", b"text,n\ncaf\xe9,1\nok,2\n") == [
        "invalid_encoding",
        {"text": "ok", "n": "2"},
    ]


def test_tsv(tmp_path):
    assert outcomes(tmp_path / "a.tsv", b'id\ttext\n1\t"a\tb, c"\n') == [
        {"id": "1", "text": "a\tb, c"}
    ]


def test_jsonl_outcomes(tmp_path):
    lines = [
        b'{"text": "a", "n": [1]}',
        b"   ",
        b'{"text": "cut',
        b"[1]",
        b'{"text": "\\ud800"}',
        b'{"text": "\\ud83d\\ude00"}',
        b'{"text": "\xff"}',
        b'{"text": ' + b"9" * 5000 + b"}",
        b'{"text": ' + b"[" * 100_000,
        '{"text": "a\u2028b"}'.encode(),
    ]
    assert outcomes(tmp_path / "a.jsonl", b"\r\n".join(lines)) == [
        {"text": "a", "n": [1]},
        "invalid_json",
        "invalid_json",
        "invalid_encoding",
        {"text": "😀"},
        "invalid_encoding",
        "invalid_json",
        "invalid_json",
        {"text": "a\u2028b"},
    ]


def test_parquet_rows_in_shards_over_row_groups(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"t{i}" for i in range(5000)], "n": list(range(5000))})
    pq.write_table(table, path, row_group_size=1700)
    rows = rows_of(path, rows_per_shard=900)
    assert [row.values for row in rows] == table.to_pylist()
    assert rows[3].raw == b'{"n":3,"text":"t3"}'


def test_parquet_string_that_is_not_utf8_costs_one_row(tmp_path):
    path = tmp_path / "a.parquet"
    bad = pa.array([b"ok", b"caf\xe9", b"fine"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": bad}), path)
    rows = rows_of(path)
    assert [outcome(row) for row in rows] == [{"text": "ok"}, "invalid_encoding", {"text": "fine"}]
    assert rows[1].raw == b'{"text":"caf\\\\xe9"}'


def test_a_duplicate_keeps_its_id_and_bytes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text\n7,a\n7,b\n")
    rows = rows_of(path, id_column="id")
    assert isinstance(rows[1], Rejected)
    assert (rows[1].stage, rows[1].reason) == ("validate", "duplicate_id")
    assert (rows[1].record_id, rows[1].raw) == ("7", b"7,b")


@pytest.mark.parametrize("content", [b"text\na\n", b"text\na\nlonger\n", None])
def test_a_file_that_changed_since_the_survey_is_an_error(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\na\nb\n")
    data = DataConfig(incoming="x", text_columns=("text",))
    found = survey(
        [path], data=data, home=Home(tmp_path), rows_per_shard=10, spool=tmp_path / "spool"
    )
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataContractError, match=r"a\.csv: changed since it was surveyed"):
        list(read_shard(found.shards[0]))


@QUICK
@given(
    body=st.lists(
        st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"\xff", b" ", b'a"'])
    ).map(b"".join),
    rows_per_shard=st.integers(1, 4),
)
def test_any_csv_gives_the_same_rows_in_any_shards(tmp_path, body, rows_per_shard):
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n" + body)
    assert rows_of(path, rows_per_shard=rows_per_shard, spool=path.parent / "spool") == rows_of(
        path
    )


@QUICK
@given(
    body=st.lists(st.sampled_from([b'{"text":"a"}', b"\n", b"\r\n", b"{", b"\xff", b" "])).map(
        b"".join
    ),
    rows_per_shard=st.integers(1, 4),
)
def test_any_jsonl_gives_the_same_rows_in_any_shards(tmp_path, body, rows_per_shard):
    path = tmp_path / "a.jsonl"
    path.write_bytes(body)
    assert rows_of(path, rows_per_shard=rows_per_shard, spool=path.parent / "spool") == rows_of(
        path
    )


@QUICK
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=8),
    rows_per_shard=st.integers(1, 3),
)
def test_what_writers_wrote_is_read_back(tmp_path, texts, rows_per_shard):
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "text"], *([str(i), text] for i, text in enumerate(texts))])
    expected = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    options = {"rows_per_shard": rows_per_shard}
    assert outcomes(tmp_path / "a.csv", out.getvalue().encode(), **options) == expected
    lines = "".join(json.dumps(row) + "\n" for row in expected)
    assert outcomes(tmp_path / "a.jsonl", lines.encode(), **options) == expected
