"""A registered bundle into a folder of the user's own."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.model_address import parse_address
from jobs.options import Context, job
from pipeline.bundle import load_spec
from pipeline.engines.bundle_cache import BundleCache
from pipeline.engines.registry import Registry
from schemas.errors import ArtifactError, ConfigError, TransientError
from schemas.manifest import sync_folder

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.manifest import ModelRef

log = logging.getLogger(__name__)


@job(
    "models pull",
    epilog="\b\nExamples:\n"
    "  nightmill models pull tickets@champion ./bundle\n"
    "  nightmill models pull tickets/3 ./bundle\n",
)
@click.argument("model", metavar="NAME@ALIAS|NAME/VERSION")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def pull_model(context: Context, model: str, folder: Path) -> dict[str, Any]:
    """Put a version's bundle into DIR, which must be new or empty; its files are checked.

    Where the registry cannot be reached, what it said last is taken from the home's downloads, and
    a warning says of when that is. Scoring never does so.
    """
    address = parse_address(model)
    if address.which is None:
        raise ConfigError(f"model {model!r}: name an alias or a version, as {model}@champion")
    _check_free(folder)
    ref, bundle, asked_at = _find(str(address), context.home)
    put_bundle(bundle, folder, digest=ref.digest)
    log.info("models:/%s/%s is in %s", ref.name, ref.version, folder)
    return {**ref.model_dump(), "folder": str(folder), "offline_since": asked_at}


def _find(uri: str, home: Home) -> tuple[ModelRef, Path, str | None]:
    try:
        return *Registry(home).fetch(uri), None
    except TransientError as error:
        known = BundleCache(home).last_known(uri)
        if known is None:
            raise TransientError(
                f"{error}; and {uri} was never fetched into this home, so it cannot be had offline"
            ) from error
        resolved, bundle = known
        asked_at = resolved.at.isoformat(timespec="seconds")
        log.warning(
            "OFFLINE: %s. %s was version %s on %s; it may be another one by now",
            error, uri, resolved.model.version, asked_at,
        )  # fmt: skip
        return resolved.model, bundle, asked_at


def put_bundle(bundle: Path, folder: Path, *, digest: str) -> None:
    """Copies a bundle to a folder that is new or empty: all of it, or nothing.

    Raises:
        ConfigError: the folder is neither, or cannot be written to.
        ArtifactError: the copy is not what was registered.
    """
    temporary = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copytree(bundle, temporary)
            if (got := load_spec(temporary).digest) != digest:
                raise ArtifactError(f"{bundle} has digest {got[:12]}, registered was {digest[:12]}")
            _check_free(folder)
            temporary.replace(folder.absolute())  # one of another process meanwhile is not empty
            sync_folder(temporary.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}; name another folder") from error


def _check_free(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder; name another one")
