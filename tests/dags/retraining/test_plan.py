from __future__ import annotations

import re

import pytest

from dags.retraining.plan import plan_of, promotion_arguments, run_name

DEFAULTS = {"task": "tickets", "backbone": "", "epochs": 0, "seed": 0, "precision": "auto"}


def test_run_name_is_stable_and_safe():
    name = run_name("manual__2026-11-29T16:31:00.5+00:00")
    assert name == "manual__2026-11-29T16-31-00-5-00-00-" + name[-8:]
    assert name == run_name("manual__2026-11-29T16:31:00.5+00:00")


@pytest.mark.parametrize("run_id", ["../../etc", "", "ü" * 300, "a b/c", ".hidden", "-x"])
def test_run_name_is_always_a_plain_folder_name(run_id):
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{7,68}", run_name(run_id))


def test_run_ids_that_look_alike_get_different_names():
    assert run_name("a b") != run_name("a:b")


def test_defaults_leave_the_recipe_to_the_task():
    name = run_name("run")
    base = ["tickets", "--run", name]
    assert plan_of(DEFAULTS, "run") == {"finetune": base, "bundle": base, "register": base}


def test_a_field_that_the_form_emptied_is_the_task_s_own():
    assert plan_of({**DEFAULTS, "backbone": None}, "run") == plan_of(DEFAULTS, "run")


def test_form_becomes_overrides():
    params = {
        **DEFAULTS,
        "backbone": " hf:bert-base-uncased ",
        "epochs": 2,
        "seed": 7,
        "precision": "fp32",
    }
    base = ["tickets", "--run", run_name("run")]
    training = ["train.epochs=2", "train.backbone=hf:bert-base-uncased", "train.seed=7"]
    assert plan_of(params, "run") == {
        "finetune": [*base, *training],
        "bundle": [*base, *training, "compress.prefer=[fp32]"],
        "register": base,
    }


def test_promotion_says_who_and_why():
    arguments = promotion_arguments(
        task="tickets", version=3, approver="ada", reason="-- it's good"
    )
    assert arguments == [
        "tickets", "--version", "3", "--approver", "ada", "--reason", "-- it's good",
    ]  # fmt: skip
