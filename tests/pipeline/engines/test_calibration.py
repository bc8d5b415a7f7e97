"""A host's measurement: what it makes of speeds and of bits that move, and where it is kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pipeline.batch_plan import ONE_A_CALL, BatchTable
from pipeline.bundle import calibrate_host, scoring_flow
from pipeline.engines import calibration
from pipeline.engines.calibration import calibrate, known_calibration, measure
from pipeline.rows import RawRow
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from pipeline.window import Window
    from schemas.task import TaskConfig, Variant

IDS = tuple(range(5, 45))


class FakeHost:
    """A clock and an engine on which a call costs `call_s` and a token `token_s`.

    `moves` says of a call's length and rows whether neighbours move the logits of its last row.
    """

    def __init__(
        self,
        *,
        call_s: float,
        token_s: float = 1e-5,
        moves: Any = lambda n_tokens, rows: False,
    ) -> None:
        self.now = 0.0
        self.calls: list[tuple[int, int]] = []
        self._call_s, self._token_s, self._moves = call_s, token_s, moves

    def clock(self) -> float:
        return self.now

    def run(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        (n_tokens,) = {window.n_tokens for window in windows}
        self.calls.append((n_tokens, len(windows)))
        self.now += self._call_s + self._token_s * n_tokens * len(windows)
        logits = np.array([[sum(window.input_ids)] for window in windows], np.float32)
        if self._moves(n_tokens, len(windows)):
            logits[-1] = np.nextafter(logits[-1], np.float32(np.inf))
        return logits

    def measure(self, **options: Any) -> tuple[bool, dict[tuple[int, int], float]]:
        same, speeds = measure(self.run, IDS, max_tokens=256, clock=self.clock, **options)
        return same, {(speed.n_tokens, speed.rows): speed.tokens_per_s for speed in speeds}


def test_speeds_are_tokens_by_seconds() -> None:
    same, speeds = FakeHost(call_s=8e-5).measure()
    assert same
    assert speeds[8, 1] == pytest.approx(8 / 16e-5, rel=1e-3)
    assert speeds[8, 32] == pytest.approx(256 / 264e-5, rel=1e-3)
    assert speeds[256, 1] == pytest.approx(256 / 264e-5, rel=1e-3)
    assert all(n_tokens * rows <= 256 for n_tokens, rows in speeds)


def test_longer_windows_are_not_tried_together_once_nothing_is_gained() -> None:
    _, speeds = FakeHost(call_s=0.0).measure()
    assert {rows for n_tokens, rows in speeds if n_tokens > 8} == {1}
    assert {n_tokens for n_tokens, _ in speeds} == {8, 16, 32, 64, 128, 256}


def test_a_slow_model_is_not_tried_for_long() -> None:
    host = FakeHost(call_s=8e-3, token_s=1e-3)
    _, speeds = host.measure()
    assert {n_tokens for n_tokens, rows in speeds if rows > 1} == {8}
    assert host.now < 12  # seconds on the fake clock


@pytest.mark.parametrize("moved", [(8, 2), (16, 16), (5, 4), (3, 32), (37, 2), (128, 2)])
def test_failure_25_one_bit_that_moves_in_any_call_is_seen(moved: tuple[int, int]) -> None:
    host = FakeHost(call_s=8e-5, moves=lambda *call: call == moved)
    same, _ = host.measure()
    assert moved in host.calls
    assert not same


def test_a_variant_that_depends_on_neighbours_is_only_timed_alone() -> None:
    host = FakeHost(call_s=8e-5)
    same, speeds = host.measure(several=False)
    assert not same
    assert {rows for _, rows in host.calls} == {rows for _, rows in speeds} == {1}


def test_no_window_is_longer_than_the_model_reads() -> None:
    host = FakeHost(call_s=8e-5)
    measure(host.run, IDS, max_tokens=20, clock=host.clock)
    assert max(n_tokens for n_tokens, _ in host.calls) == 16
    host = FakeHost(call_s=8e-5)
    measure(host.run, IDS, max_tokens=4, clock=host.clock)
    assert {n_tokens for n_tokens, _ in host.calls} == {4, 3}


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def with_variant(bundle: Path, variant: Variant) -> BundleSpec:
    spec = BundleSpec.read(bundle / BUNDLE_FILE).model_copy(update={"variant": variant})
    spec.write(bundle / BUNDLE_FILE)
    return spec


def with_batching(task: TaskConfig, batching: str) -> TaskConfig:
    return task.model_copy(update={"score": task.score.model_copy(update={"batching": batching})})


def test_a_host_measures_once(bundle: Path, tiny_task: TaskConfig, tmp_path: Path) -> None:
    plans, spec = tmp_path / "plans", BundleSpec.read(bundle / BUNDLE_FILE)
    assert known_calibration(plans, spec) is None
    first = calibrate(bundle, spec, tiny_task, plans=plans)
    assert {speed.n_tokens for speed in first.speeds} == {8, 16, 32}  # windows have at most 32
    assert known_calibration(plans, spec) == first
    assert known_calibration(plans, spec, threads=2) is None
    (path,) = plans.iterdir()
    mark = first.model_copy(update={"speeds": first.speeds[:1]})
    mark.write(path)
    assert calibrate(bundle, spec, tiny_task, plans=plans) == mark  # read, not measured


@pytest.mark.parametrize("damage", ["cut", "of another host"])
def test_a_damaged_file_is_measured_again(
    bundle: Path, tiny_task: TaskConfig, tmp_path: Path, damage: str
) -> None:
    plans, spec = tmp_path / "plans", BundleSpec.read(bundle / BUNDLE_FILE)
    first = calibrate(bundle, spec, tiny_task, plans=plans)
    (path,) = plans.iterdir()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    else:
        first.model_copy(update={"host": "another"}).write(path)
    assert known_calibration(plans, spec) is None
    assert calibrate(bundle, spec, tiny_task, plans=plans).host == first.host
    assert known_calibration(plans, spec) is not None


def test_another_kind_of_host_does_not_go_by_it(
    bundle: Path, tiny_task: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, spec = tmp_path / "plans", BundleSpec.read(bundle / BUNDLE_FILE)
    calibrate(bundle, spec, tiny_task, plans=plans)
    monkeypatch.setattr(calibration, "host_kind", lambda: "0" * 64)
    assert known_calibration(plans, spec) is None


@pytest.mark.parametrize(("variant", "batching"), [("int8_dynamic", "auto"), ("fp32", "one")])
def test_nothing_is_measured_where_each_window_is_a_call_anyway(
    bundle: Path, tiny_task: TaskConfig, tmp_path: Path, variant: Variant, batching: str
) -> None:
    with_variant(bundle, variant)
    task = with_batching(tiny_task, batching)
    assert calibrate_host(bundle, task, plans=tmp_path / "plans") == ONE_A_CALL
    assert not (tmp_path / "plans").exists()


def test_failure_25_equal_length_is_refused_for_dynamic_int8(
    bundle: Path, tiny_task: TaskConfig, tmp_path: Path
) -> None:
    with_variant(bundle, "int8_dynamic")
    task = with_batching(tiny_task, "equal_length")
    with pytest.raises(
        ConfigError, match=r"score.batching equal_length: a bundle of variant int8_d"
    ):
        calibrate_host(bundle, task, plans=tmp_path / "plans")
    with pytest.raises(ConfigError, match=r"score.batching equal_length"):
        scoring_flow(bundle, task)


def test_failure_25_a_flow_scores_the_same_bytes_with_and_without_the_calibration(
    bundle: Path, tiny_task: TaskConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        RawRow("f", n, {"ticket_id": f"t{n}", "subject": "card", "body": body}, b"")
        for n, body in enumerate(f"late {n} " * (n % 5 + 1) for n in range(40))
    ]
    plans, spec = tmp_path / "plans", BundleSpec.read(bundle / BUNDLE_FILE)
    found = calibrate(bundle, spec, tiny_task, plans=plans)
    (path,) = plans.iterdir()
    used: list[int] = []
    real = BatchTable.rows
    monkeypatch.setattr(BatchTable, "rows", lambda self, n: used.append(real(self, n)) or used[-1])
    alone = scoring_flow(bundle, tiny_task).score(rows)
    assert set(used) == {1}
    # Where this host keeps the bytes, and gains or not: several in a call must change nothing.
    batching = "equal_length" if found.same_bytes else "auto"
    together = scoring_flow(bundle, with_batching(tiny_task, batching), plans=plans).score(rows)
    assert (max(used) > 1) == found.same_bytes
    assert path.exists()
    for mine, theirs in zip(alone.scored, together.scored, strict=True):
        for name in tiny_task.heads:
            assert mine.answers[name].scores.tobytes() == theirs.answers[name].scores.tobytes()
