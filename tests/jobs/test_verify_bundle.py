"""A host that is to score: what it measures, and whether the night then goes on."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from jobs.inference import Scorer, ShardWork, infer
from pipeline.bundle import load_spec
from pipeline.cascade import Cascade, Saving
from pipeline.engines.host import this_host
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.model.verification import write_verification
from pipeline.staging import Staging
from schemas.bundle import BUNDLE_FILE, MODEL_FILE, TOKENIZER_FILE, VERIFICATION_FILE, BundleSpec
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of_file
from schemas.manifest import CascadeRef, ModelRef, Shard
from schemas.verification import HostVerification, KindOfHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from schemas.home import Home
    from schemas.task import TaskConfig

OTHER_CPU = ("avx_of_tomorrow",)


@pytest.fixture
def bundle(tiny_bundle: Path, tiny_task: TaskConfig, tmp_path: Path) -> Path:
    """An INT8 bundle, by its name, that was made on a CPU which this host is not."""
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    encoder = OnnxEncoder(folder / MODEL_FILE)
    digest = write_verification(
        folder / VERIFICATION_FILE, tiny_task, [], fp32=encoder, shipped=encoder,
        tokenizer=BackboneTokenizer(folder / TOKENIZER_FILE),
    )  # fmt: skip
    spec = BundleSpec.read(folder / BUNDLE_FILE)
    made = spec.host.model_copy(update={"cpu_features": OTHER_CPU})
    changes = {"verification": digest, "variant": "int8_static", "host": made}
    spec.model_copy(update=changes).write(folder / BUNDLE_FILE)
    return folder


def work(tmp_path: Path) -> ShardWork:
    shard = Shard(
        index=0, name="a.jsonl", path="a.jsonl", format="jsonl", start=0, stop=1, first_row=0,
        rows=1,
    )  # fmt: skip
    staging = Staging(tmp_path / "staging")
    return ShardWork("run", dt.date(2026, 11, 28), staging, (shard,))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> dict[str, KindOfHost]:
    """The hosts of the session that a night asks for; it scores nothing."""
    from jobs import cluster, scoring

    hosts = {"this host": this_host()}

    @contextmanager
    def scoring_pool(*_: Any, **__: Any) -> Any:
        yield cluster.Pool(1, machines=1, hosts=hosts)

    monkeypatch.setattr(cluster, "scoring_pool", scoring_pool)
    monkeypatch.setattr(scoring, "score_shards", lambda *_, **__: iter([]))
    return hosts


def scorer(bundle: Path, home: Home, saving: Saving | None = None) -> Scorer:
    model = ModelRef(name="bundle", version="local", digest=load_spec(bundle).digest)
    return Scorer(model, bundle, "1-c", saving or Saving(), verified=home.verified)


@pytest.mark.usefixtures("pool")
def test_failure_24_a_night_is_refused_until_the_bundle_is_verified_here(
    bundle: Path, home: Home, tiny_task: TaskConfig, nightmill: Callable[..., Result],
    tmp_path: Path,
) -> None:  # fmt: skip
    refused = work(tmp_path)
    with pytest.raises(
        ArtifactError, match=rf"lacks avx_of_tomorrow.*`nightmill verify-bundle path:{bundle}`"
    ):
        infer([refused], tiny_task, scorer(bundle, home))
    assert refused.given_up
    result = tmp_path / "result.json"
    done = nightmill("verify-bundle", f"path:{bundle}", "--result", str(result), home=home)
    assert done.exit_code == 0, done.stderr
    told = json.loads(result.read_text())
    spec = load_spec(bundle)
    assert told["verified"] == str(
        home.verified / spec.digest[:16] / this_host().kind[:16] / "verified.json"
    )
    assert told["measured_on"] == this_host().model_dump(mode="json")
    assert told["facts"]["windows_per_s"] > 0
    assert sorted(path.name for path in bundle.iterdir()) == [
        "bundle.json", "model.onnx", "tokenizer.json", "verification.parquet"
    ]  # fmt: skip
    infer([work(tmp_path)], tiny_task, scorer(bundle, home))  # and now nobody objects


def test_each_node_of_a_cluster_is_asked_for(
    bundle: Path, home: Home, tiny_task: TaskConfig, pool: dict[str, KindOfHost], tmp_path: Path
) -> None:
    made = load_spec(bundle).host
    pool.clear()
    pool["node 10.0.0.1"] = KindOfHost(host=made, kind="a" * 64)
    infer([work(tmp_path)], tiny_task, scorer(bundle, home))
    less = made.model_copy(update={"cpu_features": ()})
    pool["node 10.0.0.2"] = KindOfHost(host=less, kind="b" * 64)
    with pytest.raises(ArtifactError, match=r"node 10\.0\.0\.2 lacks avx_of_tomorrow"):
        infer([work(tmp_path)], tiny_task, scorer(bundle, home))
    allowing = tiny_task.score.model_copy(update={"unverified": "allow"})
    task = tiny_task.model_copy(update={"score": allowing})
    infer([work(tmp_path)], task, scorer(bundle, home))


@pytest.mark.usefixtures("pool")
def test_the_small_model_of_a_cascade_is_asked_for_as_well(
    bundle: Path, tiny_bundle: Path, home: Home, tiny_task: TaskConfig, tmp_path: Path
) -> None:
    small = ModelRef(name="small", version="4", digest=load_spec(bundle).digest)
    cascade = Cascade(CascadeRef(small=small, thresholds={}), bundle)
    with pytest.raises(ArtifactError, match="`nightmill verify-bundle models:/small/4`"):
        infer([work(tmp_path)], tiny_task, scorer(tiny_bundle, home, Saving(cascade=cascade)))


def test_a_bundle_that_fails_ends_with_code_4_and_is_remembered(
    bundle: Path, home: Home, nightmill: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.model.facts._loading", lambda _: {})
    strict = BundleSpec.read(bundle / BUNDLE_FILE)
    compress = strict.task.compress.model_copy(update={"max_file_mb": 0.001})
    task = strict.task.model_copy(update={"compress": compress})
    strict.model_copy(update={"task": task}).write(bundle / BUNDLE_FILE)
    done = nightmill("verify-bundle", str(bundle), home=home)
    assert done.exit_code == 4
    assert "fails 1 of 6 gates on this host: int8_static file_mb: " in done.stderr
    (path,) = home.verified.rglob("verified.json")
    assert not HostVerification.read(path).passed


def test_what_is_no_bundle_is_told(
    home: Home, bundle: Path, nightmill: Callable[..., Result], tmp_path: Path
) -> None:
    done = nightmill("verify-bundle", str(tmp_path), home=home)
    assert done.exit_code == 4
    assert "holds no bundle.json" in done.stderr
    (bundle / MODEL_FILE).write_bytes(b"cut")
    assert digest_of_file(bundle / MODEL_FILE) != load_digest(bundle)
    done = nightmill("verify-bundle", str(bundle), home=home)
    assert "model.onnx has digest" in done.stderr


@pytest.mark.slow
def test_a_task_stands_for_its_champion(home: Home, nightmill: Callable[..., Result]) -> None:
    done = nightmill("verify-bundle", "tickets", home=home)
    assert done.exit_code == 4
    assert "no model models:/tickets@champion" in done.stderr


def load_digest(bundle: Path) -> str:
    return BundleSpec.read(bundle / BUNDLE_FILE).files[MODEL_FILE]
