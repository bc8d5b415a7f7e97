from __future__ import annotations

import json

from dags.retraining.evidence import evidence
from dags.retraining.markdown import escaped
from schemas.bundle import GateResult
from schemas.evidence import (
    MAX_EVIDENCE_BYTES,
    Evidence,
    HeadEvidence,
    LabelChange,
    ModelFigures,
    SliceEvidence,
)
from schemas.paired import PairedResult

PARAMS = {"reason": "", "approval_hours": 24}
REGISTERED = {"name": "tickets", "version": "4", "run_id": "abc", "champion": "3"}
PAIRED = PairedResult(
    rows=500,
    accuracy=0.91,
    accuracy_gain=0.02,
    accuracy_gain_interval=(0.001, 0.04),
    macro_f1=0.89,
    macro_f1_gain=0.02235,
    macro_f1_gain_interval=(0.003, 0.041),
    only_new=30,
    only_champion=20,
    p_value=0.0312,
)
HEAD = HeadEvidence(
    head="queue",
    rows=500,
    accuracy=0.93,
    accuracy_interval=(0.91, 0.95),
    macro_f1=0.9123,
    macro_f1_interval=(0.89, 0.93),
    majority_accuracy=0.2,
    calibration_error=0.0312,
    paired=PAIRED,
)
NEW = ModelFigures(
    training_run="r",
    backbone="hf:small_one",
    variant="int8_static",
    digest="0123456789abcdef",
    data_digest="d" * 64,
    weights_digest="e" * 64,
    megabytes=23.4,
    windows_per_s=171.2,
    p95_ms=8.123,
    host="avx2, avx512_vnni",
    teachers=("models:/tickets/2 (012345678901)",),
)
CHAMPION = NEW.model_copy(
    update={"version": "3", "variant": "fp32", "megabytes": 90.0, "teachers": (), "p95_ms": None}
)
GATES = (
    GateResult(
        variant="int8_dynamic", gate="neighbour_effect", value=0.16, rule="<=", threshold=0.0,
        passed=False,
    ),
    GateResult(
        variant="int8_static", gate="label_agreement.queue", value=0.99, rule=">=", threshold=0.97,
        passed=True,
    ),
)  # fmt: skip
FOUND = Evidence(
    new=NEW,
    champion=CHAMPION,
    champion_version="3",
    choice="int8_static is the first choice of compress.prefer",
    rows={"train": 900, "valid": 100, "test": 500},
    heads=(HEAD,),
    slices=(
        SliceEvidence(
            head="queue", lang="de", rows=40, macro_f1=0.8, macro_f1_interval=(0.7, 0.9),
            champion_macro_f1=0.85,
        ),
        SliceEvidence(head="queue", lang="en", rows=460, macro_f1=0.92),
    ),
    gates=GATES,
    labels=(
        LabelChange(head="queue", added=("legal",), removed=("a", "b"), n_added=1, n_removed=9),
    ),
    notes=("The champion's records were split in another way.",),
    pages={"evaluation": "/home/models/tickets/r/evaluation.html"},
)  # fmt: skip


def page(found=FOUND, *, registered=REGISTERED, **params):
    bundled = {"evidence": json.loads(found.model_dump_json())}
    return evidence(bundled, registered, PARAMS | params)


def test_page_shows_the_new_model_beside_the_champion():
    told = page()
    assert told.startswith("**tickets version 4** (int8_static), against champion version 3\n")
    f1, gain = "0.912 (0.890 to 0.930)", "+0.022 (+0.003 to +0.041)"
    verdict = "better; only new right 30, only champion 20, p 0.031"
    accuracy = "0.930 (0.910 to 0.950)"
    row = f"| queue | 500 | {f1} | 0.890 | {gain} | {verdict} | {accuracy} | 0.910 | 0.2 | 0.0312 |"
    assert row in told
    assert "| variant | int8_static | fp32 |" in told
    assert "| size, MB | 23.4 | 90 |" in told
    assert "| windows/s on one thread | 171.2 | 171.2 |" in told
    assert "| p95 of a window, ms | 8.123 |  |" in told
    assert "| learnt from | models:/tickets/2 (012345678901) | labels alone |" in told
    assert "Records of the new one: 900 train, 100 valid, 500 test." in told
    assert "| bundle | `0123456789ab` | `0123456789ab` |" in told


def test_page_shows_languages_gates_labels_and_notes():
    told = page()
    assert "| queue | de | 40 | 0.800 (0.700 to 0.900) | 0.850 |" in told
    assert "| queue | en | 460 | 0.920 |  |" in told
    assert "| int8_dynamic | neighbour_effect | 0.16 | <= 0 |" in told
    assert "label_agreement.queue" not in told  # it passed, and is counted
    assert "Passed: 1 of `int8_static`; all values are in the log of `bundle`." in told
    assert "Ships: int8\\_static is the first choice" in told
    assert "| queue | legal | a, b and 7 more |" in told
    assert "- The champion's records were split in another way." in told
    assert "- evaluation: `/home/models/tickets/r/evaluation.html`" in told


def test_page_without_a_champion_says_so():
    first = FOUND.model_copy(
        update={
            "champion": None,
            "champion_version": None,
            "heads": (HEAD.model_copy(update={"paired": None}),),
            "labels": (),
            "notes": (),
        }
    )
    told = page(first, registered=REGISTERED | {"champion": None})
    assert "the task has no champion yet, so that it would be the first model to score" in told
    assert "|  | new |\n| --- | --- |" in told
    assert "| head | records | macro-F1 | accuracy | majority | calibration error |" in told
    for absent in ("not compared", "McNemar", "Labels that changed", "Notes", "by now"):
        assert absent not in told


def test_page_says_where_a_head_is_not_compared_with_the_champion():
    other = FOUND.model_copy(update={"heads": (HEAD.model_copy(update={"paired": None}),)})
    assert "| verdict |" in page(other)
    assert "| not compared |" in page(other)


def test_page_warns_where_the_champion_is_another_one_by_now():
    assert "**The champion is version 7 by now**" in page(registered=REGISTERED | {"champion": "7"})
    assert "by now" not in page(registered=REGISTERED | {"champion": "4"})  # it is itself


def test_page_says_why_the_run_was_started_and_lets_nobody_draw_on_it():
    told = page(reason="drift in `lang`\n# <b>new</b> [x](http://y) | z")
    line = "Why it was made: drift in \\`lang\\` \\# \\<b\\>new\\</b\\> \\[x\\](http://y) \\| z"
    assert line in told.splitlines()
    assert "Why it was made" not in page(reason=None)


def test_page_links_to_a_server_and_not_to_a_file():
    server = "http://127.0.0.1:5000/#/experiments/1/runs/abc"
    assert f"[MLflow run]({server}) `abc`" in page(registered=REGISTERED | {"page": server})
    assert "- MLflow run `abc`" in page(registered=REGISTERED | {"page": "sqlite:///x"})


def test_page_says_what_the_answers_do():
    assert "No answer within 36 h is a rejection by nobody." in page(approval_hours=36)


def test_page_says_what_was_too_much_and_where_it_is():
    many = FOUND.model_copy(update={"gates": GATES * 500, "slices": FOUND.slices * 400})
    small = many.bounded()
    assert len(small.model_dump_json().encode()) <= MAX_EVIDENCE_BYTES
    told = page(small)
    assert f"and {small.left_out['gates']} more rows in `evidence.json`" in told
    assert f"and {small.left_out['slices']} more rows in `evidence.json`" in told
    assert len(told.encode()) < 16 * 1024


def test_text_without_markup_stays_as_it_is():
    assert escaped("  plain - text, (1.5)\n twice ") == "plain - text, (1.5) twice"
