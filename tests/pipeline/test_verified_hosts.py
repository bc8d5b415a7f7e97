from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.verified_hosts import check_host
from schemas.bundle import BUNDLE_FILE, BundleSpec, GateResult, Host, VariantFacts
from schemas.errors import ArtifactError
from schemas.task import ScoreConfig
from schemas.verification import HostVerification, KindOfHost, verified_path

if TYPE_CHECKING:
    from pathlib import Path

MADE = Host(cpu_features=("avx2", "avx512f", "avx512_vnni"), onnxruntime="1")


def host(*features: str, kind: str = "a" * 64) -> KindOfHost:
    return KindOfHost(host=Host(cpu_features=features, onnxruntime="1"), kind=kind)


OLD = host("avx2")


@pytest.fixture
def spec(tiny_bundle: Path) -> BundleSpec:
    found = BundleSpec.read(tiny_bundle / BUNDLE_FILE)
    return found.model_copy(update={"variant": "int8_static", "host": MADE})


def check(spec: BundleSpec, where: KindOfHost, verified: Path, **score: Any) -> None:
    check_host(spec, where, ScoreConfig(**score), verified=verified, name="models:/tiny/1")


def remember(
    spec: BundleSpec, folder: Path, on: KindOfHost, *, passed: bool, **changes: Any
) -> Path:
    gate = GateResult(
        variant="int8_static", gate="host_agreement.queue", value=0.9, rule=">=",
        threshold=0.97 if not passed else 0.5, passed=passed,
    )  # fmt: skip
    found = HostVerification(
        bundle=spec.digest, measured_on=on, gates=(gate,),
        facts=VariantFacts(megabytes=1.0, windows_per_s=1.0), largest_change=0.1, windows=3,
        texts=0,
    ).model_copy(update=changes)  # fmt: skip
    path = verified_path(folder, bundle=spec.digest, kind=on.kind)
    found.write(path)
    return path


def test_failure_24_a_host_that_lacks_what_the_gates_ran_on_is_refused(
    spec: BundleSpec, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError) as caught:
        check(spec, OLD, tmp_path)
    assert str(caught.value) == (
        f"the int8_static bundle {spec.digest[:12]} has passed its gates on other CPUs only: this "
        "host lacks avx512f, avx512_vnni; run `nightmill verify-bundle models:/tiny/1` there, or "
        "set score.unverified=allow"
    )
    assert caught.value.exit_code == 4


def test_failure_24_a_host_with_more_than_the_gates_ran_on_is_refused_as_well(
    spec: BundleSpec, tmp_path: Path
) -> None:
    newer = host(*MADE.cpu_features, "amx_int8")
    with pytest.raises(ArtifactError, match="this host has amx_int8 that they have not"):
        check(spec, newer, tmp_path)


def test_a_host_with_the_features_of_the_one_that_made_it_needs_nothing(
    spec: BundleSpec, tmp_path: Path
) -> None:
    check(spec, host(*MADE.cpu_features), tmp_path)
    assert not list(tmp_path.iterdir())


def test_fp32_and_gpus_are_not_asked(spec: BundleSpec, tmp_path: Path) -> None:
    check(spec.model_copy(update={"variant": "fp32"}), OLD, tmp_path)
    check(spec, OLD, tmp_path, device="gpu")


def test_who_allows_it_is_only_warned(
    spec: BundleSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        check(spec, OLD, tmp_path, unverified="allow")
    assert "this host lacks avx512f, avx512_vnni; scored all the same" in caplog.text


def test_what_passed_on_a_host_with_the_same_features_counts(
    spec: BundleSpec, tmp_path: Path
) -> None:
    remember(spec, tmp_path, host("avx2", kind="b" * 64), passed=True)
    check(spec, OLD, tmp_path)  # another kind of processor, the same features
    with pytest.raises(ArtifactError, match="other CPUs only"):
        check(spec, host("avx2", "avx512f"), tmp_path)


def test_what_failed_on_this_kind_of_host_counts_above_all_else(
    spec: BundleSpec, tmp_path: Path
) -> None:
    remember(spec, tmp_path, host("avx2", kind="b" * 64), passed=True)
    remember(spec, tmp_path, OLD, passed=False)
    with pytest.raises(ArtifactError, match=r"failed its gates on this host: .* 0.9 >= 0.97 FAIL"):
        check(spec, OLD, tmp_path)
    made = host(*MADE.cpu_features, kind="c" * 64)
    remember(spec, tmp_path, made, passed=False)
    with pytest.raises(ArtifactError, match="make one there with `nightmill bundle`"):
        check(spec, made, tmp_path)


def test_what_is_of_another_bundle_or_has_no_gates_or_is_damaged_does_not_count(
    spec: BundleSpec, tmp_path: Path
) -> None:
    for changes, message in (
        ({"bundle": "f" * 64}, "other CPUs only"), ({"gates": ()}, "failed its gates on this host"),
    ):  # fmt: skip
        path = remember(spec, tmp_path, OLD, passed=True, **changes)
        with pytest.raises(ArtifactError, match=message):
            check(spec, OLD, tmp_path)
    path.write_text("{")
    with pytest.raises(ArtifactError, match="other CPUs only"):
        check(spec, OLD, tmp_path)
