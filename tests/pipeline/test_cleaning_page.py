"""The examples of docs/cleaning.md are what the steps do."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from pipeline.clean import Cleaner
from pipeline.special_tokens import GENERIC_TOKENS
from schemas.task import OPTIONAL_STEPS, CleanConfig, CleanStep

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cleaning.md").read_text(encoding="utf-8")
EXAMPLES = [
    (step, *line.split(" -> "))
    for step, block in re.findall(r"^```clean (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize(("step", "before", "after"), EXAMPLES)
def test_an_example_is_what_the_step_does(step, before, after):
    config = CleanConfig(
        steps=(step,), phone_regions=("DE", "US"), national_ids=("us.ssn", "de.idnr")
    )
    changes = Cleaner(config, special_tokens=GENERIC_TOKENS).explain(ast.literal_eval(before))
    first = changes[0].after if changes else ast.literal_eval(before)
    assert first == ast.literal_eval(after)


def test_the_page_has_every_step_in_order_and_says_which_are_optional():
    headings = re.findall(r"^## (\w+)( \(optional\))?$", PAGE, re.MULTILINE)
    assert tuple(step for step, _ in headings) == get_args(CleanStep)
    assert tuple(step for step, optional in headings if optional) == OPTIONAL_STEPS
    assert {step for step, *_ in EXAMPLES} == set(get_args(CleanStep))
