"""Whether a host may score with a bundle: its gates passed on the same CPU features.

Quantized products are other instructions on other CPUs, and have given other labels there. A bundle
of FP32 may be scored anywhere: its sums only differ in their last bits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from schemas.errors import ArtifactError
from schemas.verification import VERIFIED_FILE, HostVerification, verified_path

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.bundle import BundleSpec
    from schemas.task import ScoreConfig
    from schemas.verification import KindOfHost

log = logging.getLogger(__name__)


def check_host(
    spec: BundleSpec,
    host: KindOfHost,
    score: ScoreConfig,
    *,
    verified: Path,
    name: str,
    where: str = "this host",
) -> None:
    """Makes sure that the gates of a bundle, called `name` on the command line, hold on a host.

    `verified` is the folder in which hosts leave what they have measured.

    Raises:
        ArtifactError: they never passed on a host with the same features, or failed on this kind.
    """
    if spec.variant == "fp32" or score.device == "gpu":
        return
    found = _doubt(spec, host, verified, where)
    if found is None:
        return
    reason, is_measured = found
    mend = "make one there with `nightmill bundle`, or score on CPUs like those it was made on"
    if not is_measured:
        mend = f"run `nightmill verify-bundle {name}` there"
    if score.unverified == "allow":
        log.warning("%s; scored all the same, as score.unverified=allow says", reason)
        return
    raise ArtifactError(f"{reason}; {mend}, or set score.unverified=allow")


def _doubt(
    spec: BundleSpec, host: KindOfHost, verified: Path, where: str
) -> tuple[str, bool] | None:
    """What speaks against a host, and whether that was measured there; None where nothing does."""
    what = f"the {spec.variant} bundle {spec.digest[:12]}"
    own = _read(verified_path(verified, bundle=spec.digest, kind=host.kind), spec)
    if own is not None:
        failed = "; ".join(str(gate) for gate in own.gates if not gate.passed)
        told = f"{what} has failed its gates on {where}: {failed}"
        return None if own.passed else (told, True)
    here, made = host.host.cpu_features, spec.host.cpu_features
    if set(here) == set(made):
        return None
    folder = verified_path(verified, bundle=spec.digest, kind=host.kind).parents[1]
    for path in sorted(folder.glob(f"*/{VERIFIED_FILE}")):
        found = _read(path, spec)
        if found is None or not found.passed:
            continue
        if set(found.measured_on.host.cpu_features) == set(here):
            return None
    told = f"{what} has passed its gates on other CPUs only: {where} {_difference(made, here)}"
    return told, False


def _difference(made: tuple[str, ...], here: tuple[str, ...]) -> str:
    """`lacks avx512_vnni, and has amx_int8 that they have not`."""
    lost = ", ".join(name for name in made if name not in here)
    gained = ", ".join(name for name in here if name not in made)
    told = [f"lacks {lost}"] if lost else []
    return ", and ".join([*told, *([f"has {gained} that they have not"] if gained else [])])


def _read(path: Path, spec: BundleSpec) -> HostVerification | None:
    """None where nothing was measured, or it cannot be read, or is of another bundle."""
    try:
        found = HostVerification.read(path)
    except ArtifactError as error:
        if path.exists():
            log.warning("what a host has measured does not count: %s", error)
        return None
    return found if found.bundle == spec.digest else None
