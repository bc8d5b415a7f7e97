"""Sections of docs/BENCHMARKS.md, each written by the benchmark that measured it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "BENCHMARKS.md"
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


def cpu_name() -> str:
    """The processor's name and the instruction sets that matter for INT8."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", info)
    flags = [flag for flag in ("avx2", "avx512_vnni", "amx_int8") if f" {flag} " in info]
    return f"{name[1].strip() if name else 'unknown CPU'} ({', '.join(flags)})"
