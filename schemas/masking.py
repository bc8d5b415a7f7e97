"""Secrets out of texts that people read: log lines, error messages, pages."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MASK = "***"
_MIN_CHARS = 6  # a shorter value, such as `true`, stands in too many innocent places
_SECRET_NAME = re.compile(
    r"(PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|SECRET_KEY|ACCESS_KEY|API_KEY|FERNET_KEY)$",
    re.IGNORECASE,
)
_BEFORE_PASSWORD = r"://[^\s/?#@:\"'<>]*:"  # noqa: S105 - a pattern, not a password
_PASSWORD = r"[^\s/?#\"'<>]+"  # noqa: S105
_IN_ADDRESS = re.compile(rf"(?P<before>{_BEFORE_PASSWORD})(?P<password>{_PASSWORD})(?=@)")
_IN_QUERY = re.compile(
    r"(?P<before>[?&;](?:[\w-]*(?:password|secret|token|signature|access_key))=)[^\s&#;\"'<>]+",
    re.IGNORECASE,
)


def mask_secrets(text: str, *, environment: Mapping[str, str] | None = None) -> str:
    """The text with `***` for every secret that can be told from its place or is known here.

    That is the password of `scheme://user:password@host` (the user stays readable), parameters of
    an address that are named like a secret, and wherever they stand the values of environment
    variables named like one and the passwords of addresses in any variable.
    """
    known = set(_known(os.environ if environment is None else environment))
    for secret in sorted(known, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(secret, MASK)
    text = _IN_ADDRESS.sub(rf"\g<before>{MASK}", text)
    return _IN_QUERY.sub(rf"\g<before>{MASK}", text)


def holds_password(address: str) -> bool:
    """Whether an address has a password between scheme and host."""
    return _IN_ADDRESS.search(address) is not None


def _known(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and len(value) >= _MIN_CHARS:
            yield from _as_printed(value)
        if "://" in value:
            for match in _IN_ADDRESS.finditer(value):
                # Drivers print it decoded, addresses hold it encoded.
                for secret in (match["password"], unquote(match["password"])):
                    if len(secret) >= _MIN_CHARS:
                        yield from _as_printed(secret)


def _as_printed(secret: str) -> tuple[str, str]:
    return secret, json.dumps(secret, ensure_ascii=False)[1:-1]  # as a JSON log line has it
