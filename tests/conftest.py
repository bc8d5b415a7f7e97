"""A model small enough to be made in a second: tokenizer, backbone, task and bundle."""

# torch and its like are imported by the fixtures that need them, so that tests which need no model
# start at once.

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from schemas.bundle import BUNDLE_FILE, MODEL_FILE, TOKENIZER_FILE, BundleSpec, HeadMetrics
from schemas.fingerprint import digest_of_file
from schemas.home import Home
from schemas.load import parse_task

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

# The same examples in every run, and no clock: a change is judged by its own faults, not by the
# luck of the draw or a busy machine. `make fuzz` draws new ones.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

OURS = ("schemas", "pipeline", "jobs", "dags")
CONTROL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "the a my i it is was not and to in of for on invoice payment refund card charge app error "
    "crash login password order parcel late broken quality price service good bad great slow "
    "help please thanks today urgent never again"
)
PIECES = "abcdefghijklmnopqrstuvwxyz0123456789"
MARKS = (*".,;:!?'\"()[]<>#@&/-_äöüéñçß你好世界カ", "👨", "👩", "👧", "\u200d", "\u0301", "🇩", "🇪")


@pytest.fixture(autouse=True)
def _log_levels(caplog: pytest.LogCaptureFixture) -> None:
    """Airflow, or a job, in the process of an earlier test sets up logging its own way, for good.

    Pytest's handler is one for all tests, and a job may quieten every handler that it finds.
    """
    caplog.handler.setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in OURS:
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def _tables_of_mlflow(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow makes its tables by a long row of migrations; in each process they run once.

    The next new databases of SQLite get a copy of what came of it. Processes that a test starts
    make theirs in full.
    """
    if (tables := sys.modules.get("mlflow.store.db.utils")) is None:
        return
    migrate, made = tables._upgrade_db, tmp_path_factory.getbasetemp() / "mlflow-tables.db"

    def migrate_once(engine: Any) -> None:
        is_there = tables.sqlalchemy.inspect(engine).has_table("alembic_version")
        if engine.dialect.name != "sqlite" or is_there:
            migrate(engine)
            return
        if not (is_kept := made.exists()):
            migrate(engine)
        with closing(engine.raw_connection()) as pooled, closing(sqlite3.connect(made)) as kept:
            new = pooled.driver_connection
            source, target = (kept, new) if is_kept else (new, kept)
            source.backup(target)

    monkeypatch.setattr(tables, "_upgrade_db", migrate_once)


@pytest.fixture(scope="session")
def tiny_tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `tokenizer.json` of BERT's kind with about 150 pieces."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    pieces = [*CONTROL, *WORDS.split(), *PIECES, *(f"##{piece}" for piece in PIECES), *MARKS]
    pieces += [f"##{mark}" for mark in MARKS[-7:]]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    model = WordPiece(vocabulary, unk_token=CONTROL[1], max_input_chars_per_word=100)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(CONTROL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    path = tmp_path_factory.mktemp("tokenizer") / TOKENIZER_FILE
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def tiny_backbone(tiny_tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT of two layers; `path:FOLDER` is its name as a backbone."""
    import torch
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("backbone")
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=Tokenizer.from_file(str(tiny_tokenizer_path)).get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        pad_token_id=0,
        initializer_range=0.3,  # wide, so that different texts get clearly different scores
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    shutil.copyfile(tiny_tokenizer_path, folder / TOKENIZER_FILE)
    names = {f"{token.strip('[]').lower()}_token": token for token in CONTROL}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def tiny_task(tiny_backbone: Path) -> TaskConfig:
    """A task with two text columns, a `single` head and a `multi` one."""
    raw = {
        "name": "tiny",
        "description": "What the tests ask.",
        "data": {
            "incoming": "incoming/tiny/date={date}/*.jsonl",
            "labelled": "labelled/tiny/*.jsonl",
            "id_column": "ticket_id",
            "text_columns": ["subject", "body"],
        },
        "contract": {"max_reject_fraction": 0.5, "max_text_chars": 50_000},
        "heads": {
            "queue": {"column": "queue", "labels": ["billing", "technical", "shipping"]},
            "topics": {"kind": "multi", "column": "topics", "labels": ["price", "quality"]},
        },
        "window": {"max_tokens": 32, "stride_tokens": 8, "max_chars": 4000},
        "train": {
            "backbone": f"path:{tiny_backbone}",
            "epochs": 1,
            "batch_size": 8,
            "learning_rate": 1e-3,
        },
        "compress": {"prefer": ["fp32"], "calibration_texts": 8, "gate_texts": 8},
        "score": {"rows_per_shard": 10},
    }
    return parse_task(raw, source="tiny")


@pytest.fixture(scope="session")
def tiny_bundle(
    tiny_task: TaskConfig, tiny_tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A whole bundle of random weights; copy it before you alter it."""
    from pipeline.clean import Cleaner
    from pipeline.engines.host import describe_host
    from pipeline.engines.tokenizer import BackboneTokenizer
    from pipeline.heads import head_slices
    from pipeline.model.checkpoint import new_classifier
    from pipeline.model.export import export_onnx

    folder = tmp_path_factory.mktemp("bundle")
    export_onnx(new_classifier(tiny_task.train, head_slices(tiny_task.heads)), folder / MODEL_FILE)
    shutil.copyfile(tiny_tokenizer_path, folder / TOKENIZER_FILE)
    special_tokens = BackboneTokenizer(tiny_tokenizer_path).special_tokens
    spec = BundleSpec(
        task=tiny_task,
        label_digests={name: labels.digest for name, labels in tiny_task.label_sets.items()},
        temperatures={"queue": 1.5, "topics": 1.0},
        cleaner_version=Cleaner(tiny_task.clean, special_tokens=special_tokens).version,
        special_tokens=special_tokens,
        variant="fp32",
        files={name: digest_of_file(folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)},
        backbone=tiny_task.train.backbone,
        training_run="tiny-run",
        data_digest="0" * 64,
        metrics={name: _metrics() for name in tiny_task.heads},
        gates=(),
        host=describe_host(),
    )
    spec.write(folder / BUNDLE_FILE)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home of the test's own; a tracking address from outside does not count."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = tmp_path / "home"
    root.mkdir()
    return Home(root)


def _metrics() -> HeadMetrics:
    return HeadMetrics(
        rows=10,
        accuracy=0.5,
        accuracy_interval=(0.2, 0.8),
        macro_f1=0.5,
        macro_f1_interval=(0.2, 0.8),
        expected_calibration_error=0.1,
        majority_accuracy=0.4,
    )
