"""Hashes that say two runs would give the same bytes."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK_BYTES = 1 << 20


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, so that equal values have equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(value: Any) -> str:
    """SHA-256 hex digest of a JSON-able value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """SHA-256 hex digest of a file's bytes, read in bounded pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
