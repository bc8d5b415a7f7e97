"""Bundles of the registry in a local folder, and what was last heard of it."""

from __future__ import annotations

import datetime as dt
import logging
import shutil
from typing import TYPE_CHECKING

import mlflow
from mlflow.exceptions import MlflowException

from pipeline.bundle import load_spec
from pipeline.engines.file_lock import exclusive
from pipeline.engines.mlflow_client import reaching
from schemas.bundle import BUNDLE_FILE, BundleSpec
from schemas.errors import ArtifactError
from schemas.fingerprint import digest_of
from schemas.resolved import Resolved

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.home import Home
    from schemas.manifest import ModelRef

_DIGEST_CHARS = 16
_ARTIFACTS = "artifacts"  # where MLflow keeps what a pyfunc model was logged with
log = logging.getLogger(__name__)


class BundleCache:
    """The home's folder of downloads: bundles by digest, and what addresses last meant."""

    def __init__(self, home: Home) -> None:
        self._folder = home.downloads
        self._uri = home.tracking_uri

    def bundle(self, model: ModelRef) -> Path:
        """The folder of a model's bundle, fetched where it is not here or damaged.

        Raises:
            ArtifactError: its files cannot be had, or are not what was registered.
            TransientError: where they lie cannot be reached.
        """
        folder = self._place(model.digest)
        # Backfills start many drivers at once: the first fetches, the others find it done.
        with exclusive(folder.with_name(f".{folder.name}.lock")):
            if not _holds(folder, model.digest):
                self._fetch_into(folder, _address(model), model.digest)
        return folder

    def spec(self, model: ModelRef) -> BundleSpec:
        """A bundle's description; where the bundle is not here nothing else of it is fetched.

        Raises:
            ArtifactError: it cannot be had, or is not of what was registered.
            TransientError: where it lies cannot be reached.
        """
        for folder in (self._place(model.digest), self._folder / "specs" / model.digest):
            if (folder / BUNDLE_FILE).exists():
                spec = BundleSpec.read(folder / BUNDLE_FILE)
                if spec.digest == model.digest:
                    return spec
        return self._fetch_spec(model)

    def remember(self, address: str, model: ModelRef) -> None:
        """Keeps what the registry said of an address, for when it cannot be asked."""
        now = dt.datetime.now(dt.UTC)
        Resolved(address=address, model=model, at=now).write(self._memory(address))

    def last_known(self, address: str) -> tuple[Resolved, Path] | None:
        """What an address last meant, and its undamaged bundle, where both are here."""
        if not self._memory(address).exists():
            return None
        resolved = Resolved.read(self._memory(address))
        folder = self._place(resolved.model.digest)
        return (resolved, folder) if _holds(folder, resolved.model.digest) else None

    def _place(self, digest: str) -> Path:
        return self._folder / digest[:_DIGEST_CHARS]

    def _memory(self, address: str) -> Path:
        # Another registry may have another model under the same name.
        key = digest_of([self._uri, address])[:_DIGEST_CHARS]
        return self._folder / "resolved" / f"{key}.json"

    def _fetch_into(self, folder: Path, uri: str, digest: str) -> None:
        temporary = folder.with_name(f".{folder.name}.tmp")
        for left in (temporary, folder):
            shutil.rmtree(left, ignore_errors=True)
        # A version holds the code it was registered with as well: hundreds of files nobody reads.
        found = self._download(uri, _ARTIFACTS, temporary)
        if (got := load_spec(found.parent).digest) != digest:
            raise ArtifactError(f"{uri} has digest {got[:12]}, registered was {digest[:12]}")
        found.parent.replace(folder)
        shutil.rmtree(temporary)

    def _fetch_spec(self, model: ModelRef) -> BundleSpec:
        place = self._folder / "specs" / model.digest
        temporary = place.with_name(f".{place.name}.tmp")
        with exclusive(place.with_name(f".{place.name}.lock")):
            shutil.rmtree(temporary, ignore_errors=True)
            address = _address(model)
            found = self._download(address, self._path_of_spec(address), temporary)
            spec = BundleSpec.read(found)
            shutil.rmtree(temporary)
            if spec.digest != model.digest:
                raise ArtifactError(
                    f"{address} has digest {spec.digest[:12]}, registered was {model.digest[:12]}"
                )
            spec.write(place / BUNDLE_FILE)
        return spec

    def _path_of_spec(self, address: str) -> str:
        """MLflow keeps a bundle under the name that its folder had."""
        mlflow.set_tracking_uri(self._uri)
        try:
            with reaching(self._uri):
                listed = mlflow.artifacts.list_artifacts(f"{address}/{_ARTIFACTS}")
        except (MlflowException, OSError) as error:
            raise ArtifactError(f"{address} cannot be listed: {error}") from error
        folder = next((found.path for found in listed if found.is_dir), _ARTIFACTS)
        return f"{folder}/{BUNDLE_FILE}"

    def _download(self, uri: str, path: str, folder: Path) -> Path:
        """Fetches what a model has at a path into a folder; answers where its `bundle.json` is."""
        mlflow.set_tracking_uri(self._uri)
        folder.mkdir(parents=True)
        try:
            with reaching(self._uri):
                mlflow.artifacts.download_artifacts(f"{uri}/{path}", dst_path=str(folder))
        except (MlflowException, OSError) as error:
            raise ArtifactError(f"{uri} cannot be fetched: {error}") from error
        found = next(folder.rglob(BUNDLE_FILE), None)
        if found is None:
            raise ArtifactError(f"{uri} holds no bundle; register it again")
        return found


def _address(model: ModelRef) -> str:
    return f"models:/{model.name}/{model.version}"


def _holds(folder: Path, digest: str) -> bool:
    """Whether a folder of the cache holds that very bundle, undamaged."""
    if not (folder / BUNDLE_FILE).exists():
        return False
    try:
        return load_spec(folder).digest == digest
    except ArtifactError as error:
        log.warning("cached bundle is damaged and is fetched again: %s", error)
        return False
