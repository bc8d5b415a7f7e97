"""What runs cost: measured by workers, summed up, divided where it was shared."""

from __future__ import annotations

from jobs.spent import Spent, divide, shard_figures
from pipeline.step_clock import StepClock
from schemas.manifest import Counters, PartFile, Shard, ShardManifest

SHARD = Shard(
    index=0, name="a.csv", path="a.csv", format="csv", start=0, stop=9, first_row=0, rows=10
)
PART = PartFile(name="part-00000.parquet", rows=10, sha256="0")


def answer(*, tokens: int = 0, error: str = "", **seconds: float):
    counters = Counters(rows_read=10, rows_scored=10, tokens_inferred=tokens)
    manifest = ShardManifest(shard=SHARD, counters=counters, scores=PART, quarantine=PART)
    done = {"manifest": "" if error else manifest.model_dump_json(), "error": error}
    figures = {
        "text_s": 0.0, "infer_s": 0.0, "write_s": 0.0, "peak_mib": 300,
        "texts_remembered": 2,
    }  # fmt: skip
    return done | figures | seconds


def test_answers_of_workers_add_up_and_a_failed_shard_costs_too():
    spent = Spent()
    assert spent.add(answer(tokens=400, text_s=0.5, infer_s=2.0, write_s=0.25)).rows_read == 10
    assert spent.add(answer(tokens=100, infer_s=1.0, peak_mib=350)).tokens_inferred == 100
    assert spent.add(answer(error="ValueError: no", text_s=0.25)) == Counters()
    effort = spent.effort([SHARD, SHARD], kept=3, workers=2, machines=1, price_per_hour=0.5)
    assert effort.worker_steps == {"text": 0.75, "infer": 3.0, "write": 0.25}
    assert (effort.worker_seconds, effort.worker_peak_mib, effort.tokens) == (4.0, 350, 500)
    assert (effort.shards_scored, effort.shards_kept, effort.rows_scored) == (2, 3, 20)
    assert (effort.workers, effort.machines, effort.price_per_hour) == (2, 1, 0.5)
    assert effort.texts_remembered == 6


def test_shared_seconds_are_divided_by_the_work_that_each_run_was():
    long, short = Spent(worker_seconds=30.0), Spent(worker_seconds=10.0)
    divide({"start": 8.0, "scoring": 20.0}, [long, short])
    assert long.steps == {"start": 6.0, "scoring": 15.0}
    assert short.steps == {"start": 2.0, "scoring": 5.0}
    first, second = Spent(), Spent()
    divide({"model": 3.0}, [first, second])  # before any work
    assert first.steps == second.steps == {"model": 1.5}
    assert first.effort([], kept=0, workers=0, machines=0, price_per_hour=None).seconds == 1.5


def test_a_worker_tells_its_seconds_by_step_and_its_memory():
    moments = iter([0.0, 1.5, 2.0, 2.25, 4.0])
    clock = StepClock(lambda: next(moments))
    assert list(clock.until_read(iter("rows"), "text")) == list("rows")
    clock.lap("infer")
    clock.lap("write")
    clock.lap("infer")
    figures = shard_figures(clock)
    assert 10 < figures.pop("peak_mib") < 100_000  # an interpreter, counted in MiB
    assert figures == {
        "text_s": 1.5, "infer_s": 2.25, "write_s": 0.25, "texts_remembered": 0,
    }  # fmt: skip
