from __future__ import annotations

import re

import pytest
import yaml

from dags.retraining.form import form
from dags.retraining.plan import plan_of, run_name
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import SHIPPED_TASKS, load_task

DEFAULTS = {name: field.value for name, field in form(["tickets"]).items()}
BASE = ["tickets", "--run", run_name("run")]


@pytest.fixture
def plan(home):
    def make(**params):
        return plan_of({**DEFAULTS, **params}, "run", home=Home(home))

    return make


@pytest.fixture
def own_task(home):
    """Writes the shipped task with further sections into the home."""

    def write(**sections):
        raw = yaml.safe_load((SHIPPED_TASKS / "tickets.yaml").read_text()) | sections
        (home / "tasks").mkdir()
        (home / "tasks" / "tickets.yaml").write_text(yaml.safe_dump(raw))

    return write


def test_run_name_is_stable_and_safe():
    name = run_name("manual__2026-11-29T16:31:00.5+00:00")
    assert name == "manual__2026-11-29T16-31-00-5-00-00-" + name[-8:]
    assert name == run_name("manual__2026-11-29T16:31:00.5+00:00")


@pytest.mark.parametrize("run_id", ["../../etc", "", "ü" * 300, "a b/c", ".hidden", "-x"])
def test_run_name_is_always_a_plain_folder_name(run_id):
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{7,68}", run_name(run_id))


def test_run_ids_that_look_alike_get_different_names():
    assert run_name("a b") != run_name("a:b")


def test_defaults_leave_the_recipe_to_the_task(plan):
    assert plan() == {"finetune": BASE, "bundle": BASE, "register": BASE}


@pytest.mark.parametrize("field", ["labelled", "reason", "backbone", "learning_rate", "teacher"])
def test_a_field_that_the_form_emptied_is_the_task_s_own(plan, field):
    assert plan(**{field: None}) == plan(**{field: "  "}) == plan()


def test_form_becomes_overrides(plan):
    found = plan(
        labelled="*.csv",
        backbone=" hf:bert-base-uncased ",
        epochs=2,
        batch_size=8,
        learning_rate=" 2e-4",
        frozen_layers=0,
        seed=7,
        precision="fp32",
    )
    training = [
        'data.labelled="*.csv"',  # a star begins no plain text in YAML
        "train.epochs=2",
        "train.backbone=hf:bert-base-uncased",
        "train.batch_size=8",
        "train.learning_rate=2e-4",
        "train.frozen_layers=0",
        "train.seed=7",
    ]
    assert found == {
        "finetune": [*BASE, *training],
        "bundle": [*BASE, *training, "compress.prefer=[fp32]"],
        "register": BASE,
    }


@pytest.mark.parametrize("text", ["*.csv", "a: b", "true", "123", "[x]", "#x", 'say "x"', "ü\\n"])
def test_a_text_reaches_the_setting_as_it_was_typed(plan, home, text):
    overrides = plan(labelled=text)["finetune"][3:]
    assert load_task("tickets", Home(home), overrides=overrides).data.labelled == text


def test_the_reason_goes_to_the_run_and_is_no_setting(plan):
    found = plan(reason=" accuracy fell: 0.93 to 0.88\n")
    assert found["finetune"] == [*BASE, "--reason", "accuracy fell: 0.93 to 0.88"]
    assert found["bundle"] == BASE


def test_a_teacher_of_the_form(plan):
    found = plan(distil=True, teacher="models:/tickets@champion", backbone="path:small")
    training = ["train.backbone=path:small", "distil.teacher=models:/tickets@champion"]
    assert found["finetune"] == [*BASE, *training]
    assert found["bundle"] == [*BASE, *training]


def test_the_task_file_s_own_teacher(plan, own_task):
    own_task(distil={"teacher": "run:big", "alpha": 0.8})
    assert plan(distil=True)["finetune"] == BASE
    assert plan()["finetune"] == BASE  # off leaves it to the task file as well
    assert plan(distil=True, teacher="run:other")["finetune"][3:] == ["distil.teacher=run:other"]


def test_pruning_is_the_task_file_s_own_or_a_quarter(plan, own_task):
    cut = ["compress.prune.heads=0.25", "compress.prune.neurons=0.25"]
    assert plan(prune=True) == {"finetune": BASE, "bundle": [*BASE, *cut], "register": BASE}
    own_task(compress={"prune": {"layers": 2}})
    assert plan(prune=True)["bundle"] == BASE


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"distil": True},
            "task 'tickets' names no teacher: fill in Teacher, such as models:/tickets@champion, "
            "or give the task file a section distil",
        ),
        ({"teacher": "run:big"}, "teacher 'run:big' is named, but nobody learns from it"),
        ({"distil": True, "teacher": "tickets"}, "distil.teacher.0: string should match"),
        ({"learning_rate": "0"}, "train.learning_rate: input should be greater than 0"),
        ({"task": "nobody"}, "unknown task 'nobody'"),
    ],
)
def test_what_cannot_work_is_told_before_any_job_starts(plan, params, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        plan(**params)


def test_settings_that_do_not_go_together_are_told_before_any_job_starts(plan, own_task):
    own_task(train={"adapter": {}})
    with pytest.raises(ConfigError, match=r"prune cuts the layers that train\.adapter puts"):
        plan(prune=True)
    with pytest.raises(ConfigError, match="leave lora and frozen_layers out"):
        plan(frozen_layers=2)
