"""What is installed here: equal answers on two machines mean that they compute alike."""

from __future__ import annotations

import hashlib
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

_PROJECT = "nightmill"
_PACKAGES = ("schemas", "pipeline", "jobs")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
# Of the extras only the runtimes decide a score; a cluster needs no Airflow and no linter.
_EXTRA = re.compile(r"extra == \"(?!cpu|gpu)")


@cache
def installed_software() -> dict[str, str]:
    """Versions of Python, of our own code (a digest) and of each package that we ask for."""
    found = {"python": platform.python_version(), _PROJECT: code_digest()}
    for requirement in requires(_PROJECT) or []:
        name = _NAME.match(requirement)
        if name is None or _EXTRA.search(requirement):
            continue
        if installed := _version(name[0]):
            found[name[0]] = installed
    return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # of an extra that is not installed here
        return ""


def code_digest() -> str:
    """A digest over our modules; a version number would not tell two checkouts apart."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
