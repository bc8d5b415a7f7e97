"""A record as its author wrote it, before any dirt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Draft:
    """Values by column, without id and time, and what people decide about it by label column."""

    values: Mapping[str, Any]
    labels: Mapping[str, Any]
