from __future__ import annotations

from dags.retraining.evidence import evidence

BUNDLED = {
    "run": "r",
    "digest": "0123456789abcdef",
    "variant": "int8_static",
    "metrics": {
        "queue": {
            "rows": 500,
            "accuracy": 0.93,
            "accuracy_interval": [0.91, 0.95],
            "macro_f1": 0.91234567,
            "macro_f1_interval": [0.89, 0.93],
            "majority_accuracy": 0.2,
            "expected_calibration_error": 0.0312,
        }
    },
    "gates": [
        {
            "variant": "int8_static",
            "gate": "label_agreement",
            "value": 0.99,
            "threshold": 0.97,
            "passed": True,
        },
        {
            "variant": "int8_dynamic",
            "gate": "batch_invariance",
            "value": 3,
            "threshold": 0,
            "passed": False,
        },
    ],
}
REGISTERED = {"name": "tickets", "version": "4", "run_id": "abc"}


def test_page_shows_model_metrics_and_gates():
    page = evidence(BUNDLED, REGISTERED)
    assert page.startswith("**tickets version 4**, variant `int8_static`, bundle `0123456789ab`")
    accuracy, f1 = "0.930 (95 %: 0.910 to 0.950)", "0.912 (95 %: 0.890 to 0.930)"
    assert f"| queue | 500 | {accuracy} | {f1} | 0.2 | 0.0312 |" in page
    assert "| int8_static | label_agreement | 0.99 | 0.97 | passed |" in page
    assert "| int8_dynamic | batch_invariance | 3 | 0 | **FAILED** |" in page


def test_page_says_so_where_nothing_was_measured():
    page = evidence({**BUNDLED, "metrics": {}, "gates": []}, REGISTERED)
    assert page.count("none were measured") == 2
