"""Addresses of data in a task file, which many people read and a manifest keeps: no passwords."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from schemas.masking import holds_password


def _without_password(address: str) -> str:
    if holds_password(address):
        raise ValueError(
            "an address must hold no password; give it by the environment, for S3 as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return address


Address = Annotated[str, AfterValidator(_without_password)]
