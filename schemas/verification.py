"""What a host has measured of a bundle that another one made: `verified.json` in the home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from schemas.bundle import GateResult, Host, VariantFacts
from schemas.manifest import Document

if TYPE_CHECKING:
    from pathlib import Path

VERIFIED_FILE = "verified.json"


class KindOfHost(Document):
    """A host, and the digest of all that its kernels are chosen by."""

    host: Host
    kind: str


class HostVerification(Document):
    """The gates of a bundle as one kind of host measured them.

    `bundle` is its digest. `largest_change` is of a logit, against the host that made the bundle,
    over `windows` windows, of which `texts` are of validation texts.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings")

    bundle: str
    measured_on: KindOfHost
    gates: tuple[GateResult, ...]
    facts: VariantFacts
    largest_change: float
    windows: Annotated[int, Field(ge=0)]
    texts: Annotated[int, Field(ge=0)]

    @property
    def passed(self) -> bool:
        """Whether every gate did, of which there is at least one."""
        return bool(self.gates) and all(gate.passed for gate in self.gates)


def verified_path(folder: Path, *, bundle: str, kind: str) -> Path:
    """Where the measurement of a bundle by a kind of host lies, both by digest."""
    return folder / bundle[:16] / kind[:16] / VERIFIED_FILE
