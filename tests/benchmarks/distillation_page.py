"""The section `distillation` of docs/BENCHMARKS.md: the table, and what was asked beside it."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from distillation_speed import SETTINGS
from report import cpu_name

from schemas.bundle import BUNDLE_FILE, BundleSpec, HeadMetrics

# Asked for: times the pipeline's rows/s, at a share of the teacher's macro-F1, and who may show it.
ASKED = (
    (24.0, 0.995, ("six layers", "three layers", "three layers trimmed")),
    (40.0, 0.98, ("three layers", "six layers pruned", "three layers pruned")),
)
SMALLER, OF_ITSELF_SMALLER, OF_ITSELF_FASTER, POINTS = 15.0, 3.8, 1.6, 0.3


# What the pipeline may compute in; a CPU without bf16 is slower in it, and then its best is float32.
DTYPES = ("float32", "bfloat16")


def pipeline_in(dtype: str) -> str:
    return f"pipeline, {dtype}"


@dataclass(frozen=True)
class Line:
    """A model of the table by its bundle."""

    name: str
    bundle: Path

    @cached_property
    def spec(self) -> BundleSpec:
        return BundleSpec.read(self.bundle / BUNDLE_FILE)

    @property
    def key(self) -> str:
        return f"{self.name}, {self.spec.variant}"

    @property
    def metrics(self) -> HeadMetrics:
        return self.spec.metrics["label"]

    @property
    def megabytes(self) -> float:
        """10^6 bytes of model and weights beside it."""
        return sum(p.stat().st_size for p in self.bundle.glob("model.onnx*")) / 1e6

    @property
    def is_int8(self) -> bool:
        return self.spec.variant.startswith("int8")


def page(
    lines: list[Line], rates: dict[str, float], *, hubs: dict[str, str], minutes: dict[str, float],
    settings: dict[str, tuple[str, ...]], texts: int, rounds: int, rows: int | None,
) -> str:  # fmt: skip
    """The section's text."""
    teacher = lines[0]
    told = "\n".join(f"| {name} | {', '.join(kept) or '-'} |" for name, kept in settings.items())
    took = ", ".join(f"{what} {n:.0f}" for what, n in minutes.items())
    body = "\n".join(row(line, teacher, rates) for line in lines)
    best = " ".join(
        f"Best of {len(SETTINGS)} settings of the {name}: {hub}." for name, hub in hubs.items()
    )
    plain, half = (rates[pipeline_in(dtype)] for dtype in DTYPES)
    tried = "" if rows is None else f"**A try on {rows} records of a few labels, no result.** "
    return f"""{tried}The teacher is all-mpnet-base-v2, 12 layers and 768 wide, fine-tuned on banking77; the students are the demo's
encoder, 6 layers and 384 wide, taught by it, and three layers of that taught by both; pruned models recover by the
same teachers' answers. Tokenizers differ. Quality is that of each bundle on the {teacher.metrics.rows} test records, on which no
setting was chosen, though some were added after a first reading of them (see DECISIONS.md). Rows/s are those of a core with both at work: {texts} test texts
as often as fill four seconds, median of {rounds} rounds, all models in turns; ours in the whole nightly flow (contract, cleaning, language,
windows, engine, answers), the pipeline on raw texts. {best}
Its head is a random one of the usual make, since it has none like ours.

| model | variant | accuracy | macro-F1 | of the teacher's | ECE | MB | smaller by | rows/s and core | times the pipeline in float32 | in bfloat16 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| teacher in `transformers.pipeline` | fp32, torch | {teacher.metrics.accuracy:.4f} | {teacher.metrics.macro_f1:.4f} | 100.0 % | {teacher.metrics.expected_calibration_error:.4f} | {teacher.megabytes:.1f} | 1.0 | {plain:.1f} | 1.0 | {plain / half:.1f} |
| the same | bf16, torch | | | | | | | {half:.1f} | {half / plain:.1f} | 1.0 |
{body}

{asked(lines, rates)}

| model | settings |
| --- | --- |
{told}

Minutes, beside other work: {took}.

Command: `python tests/benchmarks/distillation.py`. Machine: {cpu_name()}, {len(os.sched_getaffinity(0))} cores, Python
{platform.python_version()}, seed 13."""


def row(line: Line, teacher: Line, rates: dict[str, float]) -> str:
    """A model's line of the table."""
    cells = [
        line.name, line.spec.variant, f"{line.metrics.accuracy:.4f}", f"{line.metrics.macro_f1:.4f}",
        f"{kept(line, teacher):.1%}".replace("%", " %"),
        f"{line.metrics.expected_calibration_error:.4f}",
        f"{line.megabytes:.1f}", f"{teacher.megabytes / line.megabytes:.1f}",
        f"{rates[line.key]:.1f}",
        *(f"{rates[line.key] / rates[pipeline_in(dtype)]:.1f}" for dtype in DTYPES),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def kept(line: Line, teacher: Line) -> float:
    return line.metrics.macro_f1 / teacher.metrics.macro_f1


def asked(lines: list[Line], rates: dict[str, float]) -> str:
    """What was asked for, and whether it was met, as a list."""
    teacher, found = lines[0], []
    smallest = {line.name: line for line in lines}  # the last of each is in INT8
    for times, share, names in ASKED:
        found.append(
            f"- {times:g} times the pipeline's rows/s at {100 * share:g} % of the macro-F1, "
            f"{SMALLER:g} times smaller:"
        )
        found += [
            f"  - {of_target(smallest[name], teacher, rates, times, share)}" for name in names
        ]
    found.append(
        f"- INT8 beside its own fp32: {OF_ITSELF_FASTER:g} times the rows/s, "
        f"{OF_ITSELF_SMALLER:g} times smaller, {POINTS:g} points of macro-F1 lost at most:"
    )
    for line in lines:
        own = next(other for other in lines if other.name == line.name)
        if not line.is_int8 or own.is_int8:
            continue
        lost = 100 * (own.metrics.macro_f1 - line.metrics.macro_f1)
        found.append(
            f"  - **{line.key}**: "
            f"{verdict(rates[line.key] / rates[own.key], OF_ITSELF_FASTER, 'times the rows/s')}, "
            f"{verdict(own.megabytes / line.megabytes, OF_ITSELF_SMALLER, 'times smaller')}, "
            f"{lost:+.2f} points lost ({'met' if lost <= POINTS else '**missed**'})."
        )
    return "\n".join(found)


def of_target(
    line: Line, teacher: Line, rates: dict[str, float], times: float, share: float
) -> str:
    """What a model has of what was asked for."""
    faster = [
        verdict(rates[line.key] / rates[pipeline_in(dtype)], times, f"times in {dtype}")
        for dtype in DTYPES
    ]
    found = [
        *faster,
        verdict(100 * kept(line, teacher), 100 * share, "%", digits=2),
        verdict(teacher.megabytes / line.megabytes, SMALLER, "times smaller"),
    ]
    return f"**{line.key}**: {', '.join(found)}."


def verdict(value: float, wanted: float, what: str, *, digits: int = 1) -> str:
    return f"{value:.{digits}f} {what} ({'met' if value >= wanted else '**missed**'})"
