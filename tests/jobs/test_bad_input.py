"""Bad input ends with the right exit code and a message that names the culprit and the mend."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DAY = "2026-11-20"


def put(home, text, name="rows.jsonl"):
    path = home.root / f"incoming/tiny/date={DAY}/{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def last_error(result):
    return json.loads(result.stderr.strip().splitlines()[-1])["message"]


def test_missing_column(tiny_home, nightmill):
    put(tiny_home, '{"ticket_id": "1", "subject": "a", "boddy": "b"}\n')
    result = nightmill("score", "tiny", "--date", DAY, home=tiny_home)
    assert result.exit_code == 3
    assert "column 'body' is missing" in last_error(result)
    assert "did you mean 'boddy'" in last_error(result)


def test_config_typo(tiny_home, nightmill):
    result = nightmill("score", "tiny", "--date", DAY, "window.max_token=64", home=tiny_home)
    assert result.exit_code == 2
    assert "unknown key 'window.max_token' (did you mean 'max_tokens'?)" in last_error(result)


def test_unknown_task(tiny_home, nightmill):
    result = nightmill("score", "tinny", "--date", DAY, home=tiny_home)
    assert result.exit_code == 2
    assert "unknown task 'tinny' (did you mean 'tiny'?)" in last_error(result)


def test_corrupted_parquet(tiny_home, nightmill):
    table = pa.table({"ticket_id": ["1"], "subject": ["a"], "body": ["b"]})
    path = put(tiny_home, "", name="rows.parquet")
    pq.write_table(table, path)
    path.write_bytes(path.read_bytes()[:-20])
    override = "data.incoming=incoming/tiny/date={date}/*.parquet"
    result = nightmill("score", "tiny", "--date", DAY, override, home=tiny_home)
    assert result.exit_code == 3
    assert "rows.parquet" in last_error(result)
    assert "corrupted or cut off" in last_error(result)


@pytest.mark.parametrize("job", ["score", "validate"])
def test_empty_partition(tiny_home, nightmill, job):
    put(tiny_home, "")
    result = nightmill(job, "tiny", "--date", DAY, home=tiny_home)
    assert result.exit_code == 3
    assert f"{DAY}" in last_error(result)
    assert "set contract.min_rows=0" in last_error(result)


def test_no_input_at_all(tiny_home, nightmill):
    result = nightmill("score", "tiny", "--date", DAY, home=tiny_home)
    assert result.exit_code == 3
    assert DAY in last_error(result)


def test_missing_alias(tiny_home, nightmill):
    put(tiny_home, '{"ticket_id": "1", "subject": "a", "body": "b"}\n')
    override = "score.model=models:/tiny@champion"
    result = nightmill("score", "tiny", "--date", DAY, override, home=tiny_home)
    assert result.exit_code == 4
    assert "no model models:/tiny@champion" in last_error(result)
    assert "nightmill train tiny" in last_error(result)


def test_model_of_another_task(tiny_home, nightmill):
    put(tiny_home, '{"ticket_id": "1", "subject": "a", "body": "b"}\n')
    override = "heads.queue.labels=[billing, shipping, technical]"
    result = nightmill("score", "tiny", "--date", DAY, override, home=tiny_home)
    assert result.exit_code == 4
    assert "head 'queue'" in last_error(result)
    assert "differ in name or order" in last_error(result)


def test_model_of_another_cleaner(tiny_home, tiny_bundle, tmp_path, nightmill):
    put(tiny_home, '{"ticket_id": "1", "subject": "a", "body": "b"}\n')
    shutil.copytree(tiny_bundle, tmp_path / "old")
    description = tmp_path / "old" / "bundle.json"
    spec = json.loads(description.read_text()) | {"cleaner_version": "0-of-old"}
    description.write_text(json.dumps(spec))
    override = f"score.model=path:{tmp_path / 'old'}"
    result = nightmill("score", "tiny", "--date", DAY, override, home=tiny_home)
    assert result.exit_code == 4
    assert "trained with text cleaner 0-of-old, installed is" in last_error(result)


def test_bad_date(tiny_home, nightmill):
    result = nightmill("score", "tiny", "--date", "yesterday", home=tiny_home)
    assert result.exit_code == 2
    assert "--date: expected a date as YYYY-MM-DD, got 'yesterday'" in last_error(result)


def test_unknown_label(tiny_home, nightmill):
    rows = [
        {"ticket_id": str(n), "subject": "s", "body": f"text {n}", "queue": queue}
        for n, queue in enumerate(["billing", "biling", "biling"])
    ]
    path = tiny_home.root / "labelled/tiny/history.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    result = nightmill("finetune", "tiny", home=tiny_home)
    assert result.exit_code == 3
    assert "head 'queue': unknown label 'biling' (did you mean 'billing'?)" in last_error(result)
    assert "in 2 records (for example 1, 2)" in last_error(result)


def test_no_result_file_after_failure(tiny_home, nightmill, tmp_path):
    result_file = tmp_path / "result.json"
    arguments = ("score", "tiny", "--date", DAY, "--result", str(result_file))
    assert nightmill(*arguments, home=tiny_home).exit_code == 3
    assert not result_file.exists()


def test_dry_run_prints_the_resolved_config(tiny_home, nightmill):
    result = nightmill(
        "score", "tiny", "--date", DAY, "--dry-run", "window.max_tokens=48", home=tiny_home
    )
    assert result.exit_code == 0
    assert "max_tokens: 48" in result.stdout
    assert DAY in result.stdout


def test_a_gpu_is_not_asked_for_where_the_runtime_is_that_for_cpus(
    tiny_home, nightmill, write_night
):
    write_night(tiny_home, DAY, rows=5)
    result = nightmill("score", "tiny", "--date", DAY, "score.device=gpu", home=tiny_home)
    assert result.exit_code == 2
    assert "install the extra `gpu`" in last_error(result)
