"""Public texts through all text steps: nothing crashes, nothing is lost, nothing changes place."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.bundle import text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.read import read_shard
from pipeline.survey import find_inputs, survey
from schemas.home import Home
from schemas.load import parse_task

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SETS = sorted(path.name for path in DATA.glob("*/")) if DATA.exists() else []
ROWS = 400  # of each set; `tests/benchmarks/text_corpora.py` takes all

pytestmark = [
    pytest.mark.needs_shared_data,
    pytest.mark.skipif(not SETS, reason=f"no public data sets in {DATA}"),
]


def flow_and_items(path: Path, tmp_path: Path, tokenizer: Path):
    raw = {
        "name": "public",
        "data": {"incoming": str(path), "id_column": "id", "text_columns": ["text"]},
        "heads": {"label": {"column": "label", "labels": ["a", "b"]}},
    }
    task = parse_task(raw, source="test")
    flow = text_flow(task, BackboneTokenizer(tokenizer))
    home = Home(tmp_path)
    paths = find_inputs(str(path), home, date=None)
    found = survey(paths, data=task.data, home=home, rows_per_shard=150, spool=tmp_path / "spool")
    rows = [row for shard in found.shards for row in read_shard(shard)]
    return flow, list(flow.prepare(rows))


@pytest.mark.parametrize("name", SETS or ["none"])
def test_every_row_of_a_public_set_is_prepared_or_rejected(
    name: str, tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    source = sorted((DATA / name).glob("*.parquet"))[0]
    table = pq.read_table(source).slice(0, None if name == "naughty_strings" else ROWS)
    pq.write_table(table, tmp_path / "some.parquet")
    flow, items = flow_and_items(tmp_path / "some.parquet", tmp_path, tiny_tokenizer_path)
    ids = [i.record.record_id if isinstance(i, Prepared) else i.record_id for i in items]
    assert ids == table["id"].to_pylist()
    control = set(
        flow.windows(next(i for i in items if isinstance(i, Prepared))).windows[0].input_ids[:1]
    )
    for item in items:
        if not isinstance(item, Prepared):
            continue
        assert [flow.cleaner.clean(text).text for text in item.texts] == list(item.texts)
        windows = flow.windows(item).windows
        assert windows[0].start_char == 0 or not item.texts[-1][: windows[0].start_char].strip()
        assert all(not control & set(window.input_ids[1:-1]) for window in windows)
        for window, following in pairwise(windows):  # nothing between two windows is left out
            assert following.start_char <= window.end_char


def test_naughty_strings_are_rejected_only_for_having_no_text(
    tmp_path: Path, tiny_tokenizer_path: Path
) -> None:
    source = DATA / "naughty_strings" / "test.parquet"
    _, items = flow_and_items(source, tmp_path, tiny_tokenizer_path)
    reasons = {item.reason.value for item in items if not isinstance(item, Prepared)}
    assert reasons == {"missing_text", "empty_after_cleaning"}
    assert len(items) == 781
