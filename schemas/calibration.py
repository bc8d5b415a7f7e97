"""What a host has measured of a bundle: how fast it reads windows, one or several in a call."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.manifest import Count, Document


class Speed(Document):
    """Tokens a second of windows of `n_tokens` each, `rows` of them in a call."""

    n_tokens: Count
    rows: Annotated[int, Field(ge=1)]
    tokens_per_s: float


class Calibration(Document):
    """Speeds of one model on one kind of host.

    `host` and `model` are digests: of what kernels are chosen by, and of the model's file.
    `same_bytes`: windows of equal length had the very logits in one call that each has alone.
    """

    host: str
    model: str
    threads: Annotated[int, Field(ge=1)]
    same_bytes: bool
    speeds: tuple[Speed, ...]
