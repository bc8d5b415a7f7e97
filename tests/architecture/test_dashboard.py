"""Dashboard, alert rules and documents name the metrics that are written, and no others."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pipeline.engines.prometheus_file import write_metrics
from pipeline.engines.prometheus_steps import write_training, write_verdict
from pipeline.run_report import NightFigures
from schemas.bundle import BundleSpec, GateResult
from schemas.errors import ConfigError
from schemas.manifest import Counters, Effort
from schemas.monitor import Finding, MonitorVerdict
from schemas.training import Finetuned

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "infra/grafana/nightmill.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "infra/prometheus/rules.yml").read_text(encoding="utf-8"))
MAPPINGS = yaml.safe_load((ROOT / "infra/prometheus/statsd_mapping.yml").read_text())["mappings"]
OF_NODE_EXPORTER = {"node_textfile_scrape_error"}
METRIC = r"\b((?:nightmill|airflow|node)_[a-z0-9_]+)\b"
SELECTOR = METRIC + r"\{([^}]*)\}"

EFFORT = Effort(
    rows_scored=9, worker_seconds=3.0, workers=1, tokens=5, worker_peak_mib=3, machines=1,
    steps={"scoring": 2.0}, worker_steps={"text": 1.0}, price_per_hour=1.0,
)  # fmt: skip
COUNTERS = Counters(
    rows_read=10, rows_scored=9, rows_quarantined=1, quarantined_by_reason={"missing_text": 1}
)


def a_verdict(*findings: tuple[str, str]) -> MonitorVerdict:
    told = tuple(Finding(check=check, level=level, told="…") for check, level in findings)
    return MonitorVerdict(task="tickets", date="2026-11-28", level="watch", findings=told)


def a_training() -> tuple[Finetuned, BundleSpec]:
    """What a training leaves, as far as its metrics ask for it."""

    def gate(*, passed: bool) -> GateResult:
        return GateResult.model_construct(passed=passed)

    task = type("Task", (), {"name": "tickets"})()
    spec = BundleSpec.model_construct(
        task=task, gates=(gate(passed=True), gate(passed=True), gate(passed=False))
    )
    return Finetuned.model_construct(seconds=12.5, valid_macro_f1=0.75), spec


def samples(path: Path) -> dict[tuple[str, ...], float]:
    """Values by name and labels beside the task."""
    return {
        (each.name, *(v for k, v in each.labels.items() if k != "task")): each.value
        for family in text_string_to_metric_families(path.read_text())
        for each in family.samples
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """All metrics that jobs write, each with its labels."""
    folder = tmp_path_factory.mktemp("metrics")
    night = NightFigures("tickets", "2026-11-28", 10, COUNTERS, EFFORT, succeeded_at=1.0)
    write_metrics(folder / "night.prom", [night])
    write_verdict(folder / "monitor.prom", a_verdict(("drift", "watch")))
    done, spec = a_training()
    write_training(folder / "training.prom", done=done, spec=spec, at=5.0)
    return {
        sample.name: set(sample.labels)
        for path in folder.glob("*.prom")
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def panels() -> list[dict]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    rules = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    return [*shown, *rules, *(each["definition"] for each in DASHBOARD["templating"]["list"][1:])]


def of_airflow() -> dict[str, set[str]]:
    """Metrics that statsd_exporter makes of what Airflow sends, with their labels."""
    kept = [each for each in MAPPINGS if each.get("action") != "drop"]
    return {each["name"]: {"quantile", *each.get("labels", {})} for each in kept}


def test_every_metric_that_is_asked_for_is_written_with_the_labels_it_is_asked_by(written):
    known = {**written, **of_airflow(), **{name: set() for name in OF_NODE_EXPORTER}}
    asked = {name for text in expressions() for name in re.findall(METRIC, text)}
    assert len(asked) > 20
    assert asked - known.keys() == set()
    for text in expressions():
        for name, selector in re.findall(SELECTOR, text):
            assert set(re.findall(r"(\w+)\s*=", selector)) <= known[name], text


def test_every_metric_that_is_written_is_on_the_page_and_the_dashboard(written):
    on_page = set(re.findall(rf"`{METRIC}`", PAGE))
    made = written.keys() | of_airflow().keys()
    assert len(written) == 18
    assert on_page == made
    shown = {name for text in expressions() for name in re.findall(METRIC, text)}
    assert made - shown == set()


def test_every_label_that_is_written_is_on_the_page(written):
    rows = [line for line in PAGE.splitlines() if line.startswith("| `nightmill_")]
    told = {
        name: {"task", *re.findall(r"`(\w+)`", row.split("|")[2])}
        for row in rows
        for name in re.findall(rf"`{METRIC}`", row.split("|")[1])
    }
    assert told == written


def test_every_alert_has_its_line_on_the_page_and_a_summary():
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    told = re.findall(r"^\| `([A-Z][a-z]\w+)` \| \S", PAGE, re.MULTILINE)
    assert sorted(rule["alert"] for rule in rules) == sorted(told)
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)


def test_airflow_knows_the_names_that_are_mapped():
    # By its own list of metrics; importing Airflow would take seconds.
    airflow = importlib.util.find_spec("airflow")
    if airflow is None or airflow.origin is None:
        pytest.skip("Airflow is not installed")
    folder = Path(airflow.origin).parent / "_shared/observability/metrics"
    listed = yaml.safe_load((folder / "metrics_template.yaml").read_text())
    names = set()
    for metric in next(iter(listed.values())):
        legacy = metric.get("legacy_name", "-")
        name = metric["name"] if legacy == "-" else legacy
        names.add("airflow." + re.sub(r"\{\w+\}", "*", name))
    kept = {each["match"] for each in MAPPINGS if each.get("action") != "drop"}
    assert kept - names == set()


def test_the_dashboard_is_one_that_grafana_takes():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    squares = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(squares)) == len(squares)  # no two panels lie on each other
    assert max(x for x, _ in squares) == 23
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels())
    provider = yaml.safe_load(
        (ROOT / "infra/grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    assert provider["datasources"][0]["type"] == "prometheus"


def test_the_gravest_finding_of_a_check_is_told(tmp_path):
    path = tmp_path / "monitor.prom"
    write_verdict(path, a_verdict(("drift", "retrain"), ("drift", "ok"), ("late input", "watch")))
    assert samples(path) == {
        ("nightmill_monitor_level",): 1,
        ("nightmill_monitor_finding_level", "drift"): 2,
        ("nightmill_monitor_finding_level", "late input"): 1,
    }


def test_a_training_tells_its_figures(tmp_path):
    done, spec = a_training()
    write_training(tmp_path / "training.prom", done=done, spec=spec, at=5.0)
    assert samples(tmp_path / "training.prom") == {
        ("nightmill_training_timestamp_seconds",): 5,
        ("nightmill_training_seconds",): 12.5,
        ("nightmill_training_valid_macro_f1",): 0.75,
        ("nightmill_training_gates", "passed"): 2,
        ("nightmill_training_gates", "failed"): 1,
    }
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_training(tmp_path / "file/training.prom", done=done, spec=spec, at=5.0)
