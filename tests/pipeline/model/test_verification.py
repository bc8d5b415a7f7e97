"""A bundle measured by what travels in it, and what was done to bundles on the way."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from onnx import numpy_helper
from tokenizers import Tokenizer

from pipeline.bundle import load_spec
from pipeline.engines.onnx_session import OnnxEncoder
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.model.gate_inputs import ODD_TEXTS
from pipeline.model.verification import Verification, write_verification
from schemas.bundle import (
    BUNDLE_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    VERIFICATION_FILE,
    BundleSpec,
)
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.labelled import Example
    from schemas.task import TaskConfig
    from schemas.verification import HostVerification


def reference_of(folder: Path, task: TaskConfig, examples: list[Example]) -> None:
    """Writes the reference into a bundle that has none yet."""
    encoder = OnnxEncoder(folder / MODEL_FILE)
    digest = write_verification(
        folder / VERIFICATION_FILE, task, examples, fp32=encoder, shipped=encoder,
        tokenizer=BackboneTokenizer(folder / TOKENIZER_FILE),
    )  # fmt: skip
    spec = BundleSpec.read(folder / BUNDLE_FILE)
    spec.model_copy(update={"task": task, "verification": digest}).write(folder / BUNDLE_FILE)


@pytest.fixture(scope="module")
def whole(
    tiny_bundle: Path, tiny_task: TaskConfig, toy_examples: list[Example],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    folder = tmp_path_factory.mktemp("whole") / "bundle"
    shutil.copytree(tiny_bundle, folder)
    reference_of(folder, tiny_task, [e for e in toy_examples if e.split == "valid"])
    return folder


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    """A bundle of its own for each sabotage."""
    return shutil.copytree(whole, tmp_path / "bundle")


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long loading takes is not looked at here."""
    monkeypatch.setattr("pipeline.model.facts._loading", lambda _: {})


def measure(folder: Path) -> HostVerification:
    return Verification(folder, load_spec(folder)).measure()


def failed(found: HostVerification) -> set[str]:
    return {gate.gate.partition(".")[0] for gate in found.gates if not gate.passed}


def accept(folder: Path) -> None:
    """Puts the digests of the altered files into the bundle, as a careful saboteur would."""
    spec = BundleSpec.read(folder / BUNDLE_FILE)
    files = {name: digest_of_file(folder / name) for name in spec.files}
    digest = digest_of_file(folder / VERIFICATION_FILE)
    spec.model_copy(update={"files": files, "verification": digest}).write(folder / BUNDLE_FILE)


def alter_model(folder: Path, change: Callable[[Any], None]) -> None:
    model = onnx.load(str(folder / MODEL_FILE))
    change(model)
    onnx.save(model, str(folder / MODEL_FILE))
    accept(folder)


def test_a_whole_bundle_passes_and_tells_what_was_measured(whole: Path) -> None:
    found = measure(whole)
    assert found.passed
    assert {gate.gate: gate.value for gate in found.gates} == {
        "tokenizer_agreement": 1.0,
        "finite_outputs": 1.0,
        "neighbour_effect": 0.0,
        "host_agreement.queue": 1.0,
        "label_agreement.queue": 1.0,
        "certain_macro_f1_drop.queue": 0.0,
        "host_agreement.topics": 1.0,
        "label_agreement.topics": 1.0,
        "certain_macro_f1_drop.topics": 0.0,
        "logit_change": 0.0,
    }
    assert (found.largest_change, found.texts) == (0.0, 39)
    assert found.windows == 39 + len(ODD_TEXTS) + 6 + 3
    assert found.facts.windows_per_s > 0
    assert found.bundle == load_spec(whole).digest


def test_the_reference_holds_no_text_but_our_own(whole: Path) -> None:
    table = pq.read_table(whole / VERIFICATION_FILE).to_pylist()
    assert {row["text"] for row in table if row["kind"] == "odd"} == set(ODD_TEXTS)
    assert {row["text"] for row in table if row["kind"] != "odd"} == {None}
    assert [row["padding"] for row in table if row["kind"] == "padded"] != [0, 0, 0]


def test_synthetic_leaves_out_what_is_of_users(
    bundle: Path, tiny_task: TaskConfig, toy_examples: list[Example]
) -> None:
    compress = tiny_task.compress.model_copy(update={"verification": "synthetic"})
    task = tiny_task.model_copy(update={"compress": compress})
    reference_of(bundle, task, toy_examples)
    table = pq.read_table(bundle / VERIFICATION_FILE).to_pylist()
    assert {row["kind"] for row in table} == {"odd", "random", "padded"}
    assert {row["targets"] for row in table} == {None}
    found = measure(bundle)
    assert found.passed
    assert found.texts == 0
    assert not any(gate.gate.startswith("label_agreement") for gate in found.gates)


def test_a_file_over_the_bound_of_its_task_fails(
    bundle: Path, tiny_task: TaskConfig, toy_examples: list[Example]
) -> None:
    compress = tiny_task.compress.model_copy(update={"max_file_mb": 0.001})
    reference_of(bundle, tiny_task.model_copy(update={"compress": compress}), toy_examples)
    found = measure(bundle)
    assert failed(found) == {"file_mb"}
    assert found.gates[-1].value == (bundle / MODEL_FILE).stat().st_size / 1e6


def test_an_older_bundle_says_how_to_get_a_reference(tiny_bundle: Path) -> None:
    with pytest.raises(ArtifactError, match=r"has no verification\.parquet, .* `nightmill bundle`"):
        Verification(tiny_bundle, load_spec(tiny_bundle))


def test_failure_46_swapped_inputs_are_seen(bundle: Path) -> None:
    names = {"input_ids": "attention_mask", "attention_mask": "input_ids"}

    def swap(model: Any) -> None:
        for node in model.graph.node:
            swapped = [names.get(name, name) for name in node.input]
            del node.input[:]
            node.input.extend(swapped)

    alter_model(bundle, swap)
    assert {"host_agreement", "logit_change"} <= failed(measure(bundle))


def test_a_transposed_weight_is_seen(bundle: Path) -> None:
    def transpose(model: Any) -> None:
        square = (t for t in model.graph.initializer if len(t.dims) == 2 and len(set(t.dims)) == 1)
        tensor = next(square)
        turned = np.ascontiguousarray(numpy_helper.to_array(tensor).T)
        tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))

    alter_model(bundle, transpose)
    assert {"host_agreement", "label_agreement", "logit_change"} <= failed(measure(bundle))


def test_failure_30_nan_weights_are_seen(bundle: Path) -> None:
    def spoil(model: Any) -> None:
        (bias,) = [t for t in model.graph.initializer if t.name == "heads.bias"]
        values = np.full_like(numpy_helper.to_array(bias), np.nan)
        bias.CopyFrom(numpy_helper.from_array(values, bias.name))

    alter_model(bundle, spoil)
    found = measure(bundle)
    assert {"finite_outputs", "neighbour_effect", "logit_change"} <= failed(found)
    copy = type(found).model_validate_json(found.model_dump_json())
    assert np.isnan(copy.largest_change)  # what has failed can still be read
    assert not copy.passed


def test_labels_in_another_order_in_the_weights_are_seen(bundle: Path) -> None:
    def turn(model: Any) -> None:
        (bias,) = [t for t in model.graph.initializer if t.name == "heads.bias"]
        values = numpy_helper.to_array(bias) + np.array([0, 0, 50, 0, 0], np.float32)
        bias.CopyFrom(numpy_helper.from_array(values, bias.name))

    alter_model(bundle, turn)
    gates = {gate.gate: gate.passed for gate in measure(bundle).gates}
    assert not gates["host_agreement.queue"]
    assert gates["host_agreement.topics"]


def test_labels_in_another_order_in_the_description_are_seen(bundle: Path) -> None:
    spec = BundleSpec.read(bundle / BUNDLE_FILE)
    queue = spec.task.heads["queue"]
    turned = queue.model_copy(update={"labels": queue.labels[::-1]})
    task = spec.task.model_copy(update={"heads": {**spec.task.heads, "queue": turned}})
    digests = {name: labels.digest for name, labels in task.label_sets.items()}
    spec.model_copy(update={"task": task, "label_digests": digests}).write(bundle / BUNDLE_FILE)
    with pytest.raises(ArtifactError, match="is of other labels, or of another order of labels"):
        measure(bundle)


def test_a_tokenizer_of_another_model_is_seen(bundle: Path) -> None:
    path = bundle / TOKENIZER_FILE
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.normalizer = None  # another one would lowercase no more
    tokenizer.save(str(path))
    with pytest.raises(ArtifactError, match=r"tokenizer\.json has digest"):
        measure(bundle)
    accept(bundle)
    found = measure(bundle)
    assert failed(found) == {"tokenizer_agreement"}


@pytest.mark.parametrize("name", [MODEL_FILE, TOKENIZER_FILE, VERIFICATION_FILE])
def test_a_truncated_file_is_seen_by_its_digest_and_without_it(name: str, bundle: Path) -> None:
    content = (bundle / name).read_bytes()
    (bundle / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ArtifactError, match=rf"{name} has digest \w+, expected"):
        measure(bundle)
    accept(bundle)
    with pytest.raises(ArtifactError, match=r"cannot be loaded|is not a tokenizer|cannot be read"):
        measure(bundle)


def test_what_differed_where_the_bundle_was_made_may_differ_here(
    bundle: Path, tiny_task: TaskConfig, toy_examples: list[Example], tmp_path: Path
) -> None:
    """INT8 is never quite FP32: here it is only asked to be no worse than it was there."""
    other = tmp_path / "other.onnx"
    model = onnx.load(str(bundle / MODEL_FILE))
    (bias,) = [t for t in model.graph.initializer if t.name == "heads.bias"]
    values = numpy_helper.to_array(bias) + np.array([0, 0, 50, 0, 0], np.float32)
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))
    onnx.save(model, str(other))
    digest = write_verification(
        bundle / VERIFICATION_FILE, tiny_task, toy_examples[:40],
        fp32=OnnxEncoder(other), shipped=OnnxEncoder(bundle / MODEL_FILE),
        tokenizer=BackboneTokenizer(bundle / TOKENIZER_FILE),
    )  # fmt: skip
    spec = BundleSpec.read(bundle / BUNDLE_FILE)
    spec.model_copy(update={"verification": digest}).write(bundle / BUNDLE_FILE)
    found = measure(bundle)
    assert found.passed
    agreement = {gate.gate: gate.value for gate in found.gates}["label_agreement.queue"]
    assert agreement < tiny_task.compress.min_label_agreement
