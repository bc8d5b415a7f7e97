"""Passwords of people, service accounts and servers: made once, kept in files only we can read."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_BYTES = 18  # 24 characters; MLflow asks for 12 or more


def passwords_in(path: Path, names: Iterable[str]) -> dict[str, str]:
    """Passwords by name from a JSON file, which gets one for every name that has none yet.

    Delete a name's entry to give it a new password at the next start.
    """
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    made = {name: secrets.token_urlsafe(_BYTES) for name in names if name not in known}
    if made:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(known | made, file)
        temporary.replace(path)
    return known | made
