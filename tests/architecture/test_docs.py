"""What the documents name exists: jobs, make targets, options, files."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from jobs.__main__ import JOBS, module_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("infra/*.md")])


def named(pattern: str) -> list[tuple[str, str]]:
    return [
        (page.name, found)
        for page in PAGES
        for found in re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def test_every_job_that_a_page_calls_exists() -> None:
    # In code only: `nightmill JOB …` at the start of a line, of a code span, or after && or |.
    calls = named(r"(?:^|`|bin/)nightmill ([a-z-]+)")
    assert {"init", "train", "score", "promote"} <= {job for _, job in calls}
    assert [(page, job) for page, job in calls if job not in {*JOBS, "jobs"}] == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    calls = named(r"(?:^\$ |`|^)make ([a-z-]+)")
    assert {"demo", "test", "setup", "up", "check"} <= {target for _, target in calls}
    assert [(page, target) for page, target in calls if target not in targets] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_readme_shows_every_make_target_for_people() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ("setup", "demo", "up", "check", "test", "fuzz", "bench", "bench-text"):
        assert f"| `make {target}` |" in readme


@pytest.mark.parametrize("job", JOBS)
def test_options_in_the_examples_of_a_job_exist(job: str) -> None:
    command = importlib.import_module(module_of(job)).command
    known = {option for parameter in command.params for option in parameter.opts}
    used = set(re.findall(r"(--[a-z-]+)", command.epilog or ""))
    assert used <= known
