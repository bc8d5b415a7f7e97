"""What each variant of `compress.prefer` weighs, how fast it is beside FP32, and what it changes.

    python tests/benchmarks/variants.py [--data FOLDER]

The demo's encoder with a random 77-way head. FP32 and the variants take turns on one thread, a
window a call, and the fastest of five rounds counts. The INT8 kernel that this processor is not
given stands beside the one that it is. Replaces the lines of this kind of processor in the section
`variants` of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from unittest.mock import patch

import click
import numpy as np
import pyarrow.parquet as pq
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import REPOSITORY, cpu_name, rows_in, write_section
from scoring_ways import BACKBONE, LABELS, SEED, windows

from pipeline.engines import onnx_session
from pipeline.engines.host import has_vnni
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.model.backbone import load_encoder, save_tokenizer
from pipeline.model.facts import file_megabytes
from pipeline.model.network import Classifier
from pipeline.model.variants import VariantMaker
from schemas.task import CompressConfig, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from pipeline.window import Window

SECTION = "variants"
SHORT, LONG = "banking77", "movie_reviews_long"
CALIBRATED, ASKED, TIMED, ROUNDS = 256, 1000, 64, 5
FULL_WINDOW = 256  # tokens
VARIANTS: tuple[Variant, ...] = get_args(Variant)
HEADER = (
    f"| processor | variant | MB | times FP32, short | times FP32, {FULL_WINDOW} tokens | "
    "equal answers | KL from FP32 |\n| --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True)
class Way:
    """A variant as a session runs it."""

    name: str
    megabytes: float
    encoder: OnnxEncoder


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="NIGHTMILL_DATA",
              default=REPOSITORY.parent / "shared" / "data")  # fmt: skip
@click.option("--write/--no-write", default=True, help="Write docs/BENCHMARKS.md.")
def main(data: Path, write: bool) -> None:
    """Make all variants, measure them and write."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        save_tokenizer(BACKBONE, work / "tokenizer.json")
        short = windows(work, texts(data, SHORT, CALIBRATED + ASKED))
        long = [
            window for window in windows(work, texts(data, LONG, TIMED))
            if window.n_tokens == FULL_WINDOW
        ][:TIMED]  # fmt: skip
        ways = list(make_ways(short[:CALIBRATED], work / "variants"))
        lines = list(measure(ways, short[CALIBRATED:], long))
    click.echo("\n".join([HEADER, *lines]))
    if write:
        write_section(SECTION, page(lines))


def texts(data: Path, name: str, count: int) -> list[str]:
    """Distinct training texts, chosen by the seed."""
    rows = pq.read_table(data / name / "train.parquet", columns=["text"])["text"].to_pylist()
    order = np.random.default_rng(SEED).permutation(len(rows))
    return list(dict.fromkeys(rows[number] for number in order))[:count]


def make_ways(calibration: Sequence[Window], work: Path) -> Iterator[Way]:
    """FP32 first, then the other variants, `int8_static` with both kernels."""
    torch.manual_seed(SEED)
    model = Classifier(
        load_encoder(BACKBONE, dropout=0.0), n_logits=len(LABELS), pooling="mean", dropout=0.0
    )
    torch.nn.init.normal_(model.heads.weight, std=0.3)
    work.mkdir()
    config = CompressConfig(prefer=VARIANTS)
    files = VariantMaker(model, config, calibration=calibration, work=work).make_all()
    for variant in sorted(VARIANTS, key=lambda name: name != "fp32"):
        size = file_megabytes(files[variant])
        yield Way(variant, size, OnnxEncoder(files[variant]))
        if variant == "int8_static":
            other = not has_vnni()
            with patch.object(onnx_session, "has_vnni", lambda other=other: other):
                kernel = "fast" if other else "precise"
                yield Way(f"{variant}, {kernel} kernel", size, OnnxEncoder(files[variant]))


def measure(ways: Sequence[Way], short: Sequence[Window], long: Sequence[Window]) -> Iterator[str]:
    """Lines of the table, in the order of `ways`, the first of which is FP32."""
    speeds = [times_faster(ways, some[:TIMED]) for some in (short, long)]
    wanted = ways[0].encoder.logits(short)
    processor = "with VNNI" if has_vnni() else "without VNNI"
    for way in ways:
        logits = way.encoder.logits(short)
        equal = (logits.argmax(axis=1) == wanted.argmax(axis=1)).mean()
        yield (
            f"| {processor} | {way.name} | {way.megabytes:.1f} | {speeds[0][way.name]:.2f} | "
            f"{speeds[1][way.name]:.2f} | {equal:.3f} | {divergence(wanted, logits):.4f} |"
        )


def times_faster(ways: Sequence[Way], some: Sequence[Window]) -> dict[str, float]:
    """Windows a second over those of the first way, each by its fastest round."""
    best = dict.fromkeys((way.name for way in ways), float("inf"))
    for _ in range(ROUNDS):
        for way in ways:
            started = time.perf_counter()
            for window in some:
                way.encoder.logits([window])
            best[way.name] = min(best[way.name], time.perf_counter() - started)
    return {name: best[ways[0].name] / seconds for name, seconds in best.items()}


def divergence(wanted: npt.NDArray[np.float32], got: npt.NDArray[np.float32]) -> float:
    """Mean KL(wanted || got) in nats of the softmax of logits `(N, L)`."""
    p, q = (torch.log_softmax(torch.from_numpy(each).double(), dim=1) for each in (wanted, got))
    return float(torch.nn.functional.kl_div(q, p, reduction="batchmean", log_target=True))


def page(lines: Sequence[str]) -> str:
    """The section with these lines, and those of the other kind of processor as they were."""
    mine = _processor(lines[0])
    others = [row for row in rows_in(SECTION) if _processor(row) != mine]
    body = "\n".join([*others, *lines])
    return f"""The demo's 6-layer encoder with a random 77-way head, seed {SEED}, whose answers are near ties: the last two columns compare variants and say nothing of a trained model, which the gates measure.
Speed on {TIMED} windows, short ones of {SHORT} and full ones of {LONG}, one a call on one thread; answers on {ASKED:,} texts of {SHORT}; ranges from {CALIBRATED} others. All are training texts.
A processor without VNNI is given the precise kernel, since sums overflow in the fast one.

{HEADER}
{body}

Command: `python tests/benchmarks/variants.py`. Machine of the last lines: {cpu_name()}, Python {platform.python_version()}."""


def _processor(row: str) -> str:
    return row.split("|")[1].strip()


if __name__ == "__main__":
    main()
