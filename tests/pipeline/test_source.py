from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.source import Source, local_source, sources_at
from schemas.errors import ConfigError
from schemas.task import DataConfig

if TYPE_CHECKING:
    from schemas.home import Home

DATA = DataConfig(incoming="x", text_columns=("text",))


def names_at(location: str, home: Home) -> list[str]:
    return [source.name_in(home) for source in sources_at(location, home)]


@pytest.mark.parametrize(
    ("name", "format", "compression"),
    [
        ("a.csv", "csv", None),
        ("A.TSV.GZ", "tsv", "gz"),
        ("s3://b/a.2026.ndjson.zst", "jsonl", "zst"),
        ("a.parquet.bz2", "parquet", "bz2"),
    ],
)
def test_format_and_compression_go_by_the_endings(name, format, compression):
    source = Source(name)
    assert (source.format(DATA), source.compression) == (format, compression)


def test_an_unknown_ending_before_a_compression_is_named():
    with pytest.raises(ConfigError, match=r"a\.txt\.gz: format of ending '\.txt' is not known"):
        Source("a.txt.gz").format(DATA)
    with pytest.raises(ConfigError, match=r"ending '' is not known"):
        Source("dump.gz").format(DATA)
    assert Source("dump.gz").format(DATA.model_copy(update={"format": "jsonl"})) == "jsonl"


def test_a_folder_is_taken_with_all_below_it(home):
    for name in (
        "in/b.csv",
        "in/deep/er/a.jsonl.gz",
        "in/_SUCCESS",
        "in/_temporary/x.csv",
        "in/.hidden.csv",
        "in/.part/x.csv",
        "in/notes.md",
    ):
        path = home.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert names_at("in", home) == ["in/b.csv", "in/deep/er/a.jsonl.gz"]
    assert names_at("in/*", home) == ["in/b.csv", "in/notes.md"]
    assert names_at("in/**/*.gz", home) == ["in/deep/er/a.jsonl.gz"]
    assert names_at("in/_temporary/x.csv", home) == ["in/_temporary/x.csv"]
    assert names_at("nowhere", home) == []


def test_a_name_outside_of_the_home_is_the_whole_path(home, tmp_path):
    assert local_source(tmp_path / "a.csv").name_in(home) == (tmp_path / "a.csv").as_posix()


def test_other_schemes_are_refused_with_those_that_are_read(home):
    with pytest.raises(ConfigError, match=r"no files are read from gs://.*s3://, hf://"):
        sources_at("gs://bucket/a.csv", home)
