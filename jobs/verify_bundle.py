"""The gates of a bundle measured again, on the host that is to score with it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Context, job
from pipeline.bundle import load_spec
from pipeline.engines.registry import Registry
from pipeline.model.verification import Verification
from schemas.bundle import BUNDLE_FILE
from schemas.errors import ArtifactError
from schemas.verification import verified_path

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.verification import HostVerification

log = logging.getLogger(__name__)


@job(
    "verify-bundle",
    epilog="\b\nExamples:\n"
    "  nightmill verify-bundle tickets\n"
    "  nightmill verify-bundle models:/tickets/3\n"
    "  nightmill verify-bundle path:/mnt/bundles/tickets\n",
)
@click.argument("model")
def command(context: Context, model: str) -> dict[str, Any]:
    """Measure on this host whether the bundle of MODEL does what it did where it was made.

    MODEL is a task (its champion), models:/NAME@ALIAS, models:/NAME/VERSION, path:DIR or a folder.
    The result lies in the home, from where `nightmill score` reads it. Ends with exit code 4 when
    a gate fails.
    """
    folder = _folder(model, context.home)
    spec = load_spec(folder)
    found = Verification(folder, spec).measure()
    path = verified_path(context.home.verified, bundle=spec.digest, kind=found.measured_on.kind)
    found.write(path)
    _tell(found)
    failed = [f"{gate} (by {abs(gate.value - gate.threshold):.3g})"
              for gate in found.gates if not gate.passed]  # fmt: skip
    if failed:
        raise ArtifactError(
            f"bundle {folder} fails {len(failed)} of {len(found.gates)} gates on this host: "
            f"{'; '.join(failed)}; make one here with `nightmill bundle`, or score on CPUs like "
            f"those it was made on"
        )
    return {"verified": str(path), **found.model_dump(mode="json")}


def _folder(model: str, home: Home) -> Path:
    """The bundle's folder; one from the registry is fetched first.

    Raises:
        ArtifactError: there is none.
        ConfigError: it is named in no way that is known.
    """
    plain = Path(model.removeprefix("path:"))
    if (plain / BUNDLE_FILE).exists():
        return plain
    if model.startswith("path:") or plain.is_dir():
        raise ArtifactError(f"{plain} holds no {BUNDLE_FILE}; name the folder of a bundle")
    uri = model if ":" in model else f"models:/{model}@champion"
    return Registry(home).fetch(uri)[1]


def _tell(found: HostVerification) -> None:
    for gate in found.gates:
        log.info("gate %s", gate)
    facts = found.facts
    log.info(
        "%d windows, %d of them of validation texts; logits moved by %.3g at most; %.1f MB, %.0f "
        "windows/s, p95 %.1f ms", found.windows, found.texts, found.largest_change,
        facts.megabytes, facts.windows_per_s, facts.p95_ms,
    )  # fmt: skip
