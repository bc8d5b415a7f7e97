from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pipeline.engines.model_page import write_model_page
from schemas.bundle import BUNDLE_FILE, BundleSpec, GateResult, VariantFacts
from schemas.sweep import Sweep, SweepRow

if TYPE_CHECKING:
    from pathlib import Path


def gate(variant: str, name: str, value: float, *, passed: bool = True) -> GateResult:
    return GateResult.model_validate(
        {"variant": variant, "gate": name, "value": value, "rule": ">=", "threshold": 0.97,
         "passed": passed}
    )  # fmt: skip


@pytest.fixture
def spec(tiny_bundle: Path) -> BundleSpec:
    found = BundleSpec.read(tiny_bundle / BUNDLE_FILE)
    compress = found.task.compress.model_copy(update={"prefer": ("int8_static", "fp32")})
    changes = {
        "task": found.task.model_copy(update={"compress": compress}),
        "choice": "fp32 is the first that <passes>",
        "gates": (
            gate("int8_static", "label_agreement.queue", 0.91, passed=False),
            gate("int8_static", "label_agreement.topics", 0.99),
            gate("fp32", "label_agreement.queue", 1.0),
        ),
        "facts": {
            "fp32": VariantFacts(
                megabytes=40.04, windows_per_s=123.4, p95_ms=9.87, load_ms=210.2, resident_mib=111
            ),
            "int8_static": VariantFacts(megabytes=10.26, windows_per_s=300.0),
        },
        "variant_metrics": {"fp32": found.metrics, "int8_static": found.metrics},
    }
    return found.model_copy(update=changes)


def rows_of(page: str) -> list[list[str]]:
    lines = re.findall(r"<tr>(.*?)</tr>", page)
    return [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", line)]
            for line in lines]  # fmt: skip


def test_the_page_has_a_line_for_each_variant(spec: BundleSpec, tmp_path: Path) -> None:
    write_model_page(spec, tmp_path / "model.html")
    page = (tmp_path / "model.html").read_text(encoding="utf-8")
    rows = {row[0]: row for row in rows_of(page) if len(row) == 10}
    quality = "queue 0.500 0.200 to 0.800topics 0.500 0.200 to 0.800"
    assert rows["fp32"] == [
        "fp32", "ships", "40.0", "210", "111", "123", "9.9", "100.00%", quality, "0.1000.100"
    ]  # fmt: skip
    assert rows["int8_static"][2:8] == ["10.3", "-", "-", "300", "-", "91.00%"]
    assert rows["int8_static"][1] == (
        "failed int8_static label_agreement.queue: 0.91 &gt;= 0.97 FAILED"
    )
    assert list(rows) == ["int8_static", "fp32"]  # as the task prefers them
    assert "fp32 is the first that &lt;passes&gt;" in page
    assert page.count("<circle") == 2
    assert "int8_static: 10.3 MB, macro-F1 0.5000, 300 windows/s" in page
    assert "pip install netron" in page
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=|url\(|@import", page)


def test_sweeps_and_notes_are_shown_where_there_are_any(spec: BundleSpec, tmp_path: Path) -> None:
    write_model_page(spec, tmp_path / "plain.html")
    assert "Which parts suffer" not in (tmp_path / "plain.html").read_text(encoding="utf-8")
    part = SweepRow(
        name="layers.1.attention", products=4, kl=0.0312, agreement=0.875, macro_f1_drop=0.02,
        kept=True,
    )  # fmt: skip
    sweep = Sweep(variant="int8_static", texts=64, rows=(part,))
    write_model_page(
        spec, tmp_path / "model.html", sweeps=[sweep], notes={"Pruned": "2 of 12 heads"}
    )
    page = (tmp_path / "model.html").read_text(encoding="utf-8")
    assert ["layers.1.attention", "0.0312", "87.50%", "+0.0200", "FP32"] in rows_of(page)
    assert ["Pruned", "2 of 12 heads"] in rows_of(page)


def test_a_bundle_of_before_there_were_facts_has_a_page(tiny_bundle: Path, tmp_path: Path) -> None:
    spec = BundleSpec.read(tiny_bundle / BUNDLE_FILE)
    write_model_page(spec, tmp_path / "model.html")
    page = (tmp_path / "model.html").read_text(encoding="utf-8")
    assert "<svg" not in page
    assert ["Training run", "tiny-run"] in rows_of(page)
