from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline.read import read_shard
from pipeline.rows import RawRow
from pipeline.source import local_source
from pipeline.survey import survey
from schemas.errors import DataContractError
from schemas.home import Home
from schemas.task import DataConfig

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def rows_of(path, *, rows_per_shard=1000, **data):
    data = DataConfig(incoming="x", **{"text_columns": ("text",), **data})
    found = survey(
        [local_source(path)],
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


def test_a_repeated_value_is_told_with_its_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text\n7,a\n7,b\n")
    assert [row.repeated for row in rows_of(path, id_column="id")] == [(), ("id",)]


@pytest.mark.parametrize("content", [b"text\na\n", b"text\na\nlonger\n", None])
def test_a_file_that_changed_since_the_survey_is_an_error(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text\na\nb\n")
    data = DataConfig(incoming="x", text_columns=("text",))
    found = survey(
        [local_source(path)],
        data=data,
        home=Home(tmp_path),
        rows_per_shard=10,
        spool=tmp_path / "spool",
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
    assert rows_of(path, rows_per_shard=rows_per_shard) == rows_of(path)


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
    assert rows_of(path, rows_per_shard=rows_per_shard) == rows_of(path)


@QUICK
@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=8),
    rows_per_shard=st.integers(1, 3),
)
@example(texts=["0\0", "0\0"], rows_per_shard=1)  # not UTF-16 for its NULs
@example(texts=["\0", "0\0"], rows_per_shard=1)
def test_what_writers_wrote_is_read_back(tmp_path, texts, rows_per_shard):
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "text"], *([str(i), text] for i, text in enumerate(texts))])
    expected = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
    options = {"rows_per_shard": rows_per_shard}
    assert outcomes(tmp_path / "a.csv", out.getvalue().encode(), **options) == expected
    lines = "".join(json.dumps(row) + "\n" for row in expected)
    assert outcomes(tmp_path / "a.jsonl", lines.encode(), **options) == expected


def test_a_lone_carriage_return_outside_of_quotes_costs_one_row(tmp_path):
    content = b'id,text\r\n1,a\rb\n2,"c\rd"\r\n3,e\r\r\n'
    assert outcomes(tmp_path / "a.csv", content) == [
        "malformed_row",
        {"id": "2", "text": "c\rd"},
        {"id": "3", "text": "e"},
    ]


def test_a_file_whose_only_line_ends_are_carriage_returns_is_an_error(tmp_path):
    with pytest.raises(DataContractError, match="a carriage return stands alone"):
        outcomes(tmp_path / "a.csv", b"id,text\r1,a\r2,b\r")


def test_nul_bytes(tmp_path):
    assert outcomes(tmp_path / "a.csv", b"id,text\n1,a\0b\n\0\0\0\0\n3,c\n") == [
        {"id": "1", "text": "a\0b"},
        "malformed_row",
        {"id": "3", "text": "c"},
    ]
    content = b'{"text": "a\\u0000b"}\n{"text": "a\0b"}\n\0\0\0\0\n{"text": "c"}\n'
    assert outcomes(tmp_path / "a.jsonl", content) == [
        {"text": "a\0b"},
        "invalid_json",
        "invalid_json",
        {"text": "c"},
    ]


def test_a_name_that_is_twice_in_an_object_costs_one_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "a", "text": "b"}\n{"text": "c", "n": {"x": 1, "x": 2}}\n{"text": 1}'
    )
    first, second, third = rows_of(path)
    assert (first.reason, first.detail) == ("invalid_json", "the name 'text' is there twice")
    assert second.detail == "the name 'x' is there twice"
    assert third.values == {"text": 1}


def test_a_column_without_a_name_is_left_out(tmp_path):
    assert outcomes(tmp_path / "a.csv", b"text,,\na,,\nb,x,y\n") == [{"text": "a"}, {"text": "b"}]


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return [outcome(row) for row in rows_of(path)]


def test_failure_11_a_column_of_nulls_keeps_its_values_null(tmp_path):
    """An all-null first block, and a column whose very type is null, decide nothing."""
    path = tmp_path / "a.parquet"
    text = pa.array([None] * 1500 + ["later"])
    pq.write_table(pa.table({"text": text, "n": pa.nulls(1501)}), path, row_group_size=1500)
    rows = rows_of(path, rows_per_shard=700)
    assert [row.values["text"] for row in rows] == [None] * 1500 + ["later"]
    assert {row.values["n"] for row in rows} == {None}


def test_failure_11_a_column_may_change_its_type_between_files(tmp_path):
    typed = {"a": pa.nulls(1), "b": pa.array(["x"]), "c": pa.array([7]), "d": pa.array([1.5])}
    for name, column in typed.items():
        pq.write_table(pa.table({"text": column}), tmp_path / f"{name}.parquet")
    values = [rows_of(tmp_path / f"{name}.parquet")[0].values["text"] for name in typed]
    assert values == [None, "x", 7, 1.5]


def test_failure_37_what_is_no_text_is_told_apart(tmp_path):
    """Null, NaN, empty and non-string values come out as they are: the contract judges them."""
    content = b'{"text": null}\n{"text": NaN}\n{"text": ""}\n{"text": 5}\n{"text": ["a"]}\n{}\n'
    values = [row.get("text", "absent") for row in outcomes(tmp_path / "a.jsonl", content)]
    assert values[0] is None
    assert values[1] != values[1]
    assert values[2:] == ["", 5, ["a"], "absent"]


def test_failure_36_a_lone_surrogate_in_parquet_costs_one_row(tmp_path):
    text = pa.array([b"ok", "\ud83d".encode(errors="surrogatepass"), b"fine"]).view(pa.string())
    assert parquet(tmp_path / "a.parquet", text=text) == [
        {"text": "ok"},
        "invalid_encoding",
        {"text": "fine"},
    ]


def test_failure_36_a_lone_surrogate_in_a_json_name_costs_one_row(tmp_path):
    content = b'{"text": "a", "\\udfff": 1}\n{"text": "b"}\n'
    assert outcomes(tmp_path / "a.jsonl", content) == ["invalid_encoding", {"text": "b"}]


def test_nested_and_dictionary_columns_of_parquet(tmp_path):
    table = {
        "text": pa.array(["a", "b", "a"]).dictionary_encode(),
        "tags": pa.array([["x"], None, []]),
        "from": pa.array([{"name": "n"}, None, {"name": None}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    assert parquet(tmp_path / "a.parquet", **table) == [
        {"text": "a", "tags": ["x"], "from": {"name": "n"}, "map": [("k", 1)]},
        {"text": "b", "tags": None, "from": None, "map": None},
        {"text": "a", "tags": [], "from": {"name": None}, "map": []},
    ]


def test_a_time_that_python_cannot_hold_costs_one_row(tmp_path):
    path = tmp_path / "a.parquet"
    at = pa.array([0, 10**18], pa.timestamp("us"))
    pq.write_table(pa.table({"text": ["a", "b"], "at": at}), path)
    fine, bad = rows_of(path)
    assert fine.values["text"] == "a"
    assert (bad.reason, bad.detail) == ("value_out_of_range", "column 'at': got timestamp[us]")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_record_over_the_limit_costs_one_row(tmp_path, name):
    path, long = tmp_path / name, "x" * 200_000
    texts = ["before", long, "after"]
    if name == "a.csv":
        path.write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    elif name == "a.jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        pq.write_table(pa.table({"text": texts}), path)
    rows = rows_of(path, max_record_bytes=100_000)
    assert [outcome(row) for row in rows] == [
        {"text": "before"},
        "record_too_large",
        {"text": "after"},
    ]
    assert len(rows[1].raw) <= 64 << 10
    assert rows[1].raw_bytes >= 200_000
    assert len(rows[1].raw_sha256) == 64


def test_a_record_of_50_mb_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "' + b"word " * 10_000_000 + b'"}\n{"text": "b"}\n')
    long, short = rows_of(path)
    assert len(long.values["text"]) == 50_000_000
    assert short.values == {"text": "b"}


GIANT = """
import resource, sys
from pathlib import Path
from pipeline.read import read_shard
from pipeline.source import local_source
from pipeline.survey import survey
from schemas.home import Home
from schemas.task import DataConfig

path = Path(sys.argv[1])
data = DataConfig(incoming="x", text_columns=("text",))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = survey([local_source(path)], data=data, home=Home(path.parent), rows_per_shard=10,
               spool=path.parent / "spool")
rows = [row for shard in found.shards for row in read_shard(shard)]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print([str(getattr(row, "reason", "fine")) for row in rows], rows[1].raw_bytes, after - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head", "tail"),
    [
        ("a.csv", b'text\na\n"', b'"\nb\n'),
        ("a.jsonl", b'{"text":"a"}\n{"text":"', b'"}\n{"text":"b"}\n'),
    ],
)
def test_a_field_of_200_mb_costs_one_row_and_bounded_memory(tmp_path, name, head, tail):
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(head)
        for _ in range(200):
            file.write(b"line of it\\n " * 83_886)
        file.write(tail)
    done = subprocess.run(
        [sys.executable, "-c", GIANT, str(path)], capture_output=True, text=True, check=True
    )
    reasons, _, rest = done.stdout.partition("]")
    raw_bytes, grown_kib = map(int, rest.split())
    assert reasons == "['fine', 'record_too_large', 'fine'"
    assert raw_bytes > 200_000_000
    assert grown_kib < 160 << 10  # of which 64 MiB are the limit, and once more to join the parts
