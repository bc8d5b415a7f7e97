"""Sections of docs/BENCHMARKS.md, each written by the benchmark that measured it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schemas.home import Home

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "BENCHMARKS.md"
_TITLE = """# Benchmarks

Each section is written by its command, on the machine it names. Machines are shared and noisy:
seconds are what one run took, and only ratios within a run should be compared.
"""


def write_section(name: str, text: str) -> None:
    """Replaces or adds the section `name`."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else _TITLE
    section = f"## {name}\n\n{text.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(page):
        page = pattern.sub(lambda _: section + "\n", page)
    else:
        page = page.rstrip() + "\n\n" + section
    PAGE.write_text(page.rstrip() + "\n", encoding="utf-8")


def rows_in(name: str) -> list[str]:
    """The rows of the section's table, without its head; none where there is no such section."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = re.search(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    rows = [row for row in (found[0] if found else "").splitlines() if row.startswith("| ")]
    return rows[2:]


def nightmill(home: Home, command: str, *arguments: str) -> dict[str, Any]:
    """Runs a command of ours in a process of its own, without the network; answers its result."""
    result = home.root / "result.json"
    subprocess.run(
        [sys.executable, "-m", "jobs", command, *arguments, "--home", str(home.root),
         "--result", str(result)],
        check=True, cwd=REPOSITORY,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "NIGHTMILL_LOG_FORMAT": "text"},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def cpu_name() -> str:
    """The processor's name and the instruction sets that matter for INT8."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", info)
    flags = [flag for flag in ("avx2", "avx512_vnni", "amx_int8") if f" {flag} " in info]
    return f"{name[1].strip() if name else 'unknown CPU'} ({', '.join(flags)})"
