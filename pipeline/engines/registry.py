"""MLflow: runs, registered versions and their aliases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.exceptions import MlflowException

from pipeline.bundle import load_spec
from pipeline.engines import model_version
from pipeline.engines.bundle_cache import BundleCache
from pipeline.engines.mlflow_client import alias_version, reaching
from pipeline.engines.model_version import DIGEST_TAG
from pipeline.engines.promotions import (
    CHALLENGER,
    CHAMPION,
    HISTORY_EXPERIMENT,
    PREVIOUS,
    Promotions,
)
from pipeline.engines.tracked_runs import TrackedRuns
from schemas.errors import ArtifactError, ConfigError
from schemas.manifest import LOCAL_VERSION, ModelRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.bundle import BundleSpec
    from schemas.home import Home

__all__ = ["CHALLENGER", "CHAMPION", "PREVIOUS", "Registry", "Version"]

_MODEL_URI = re.compile(r"^models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))$")


@dataclass(frozen=True)
class Version:
    """A registered version as the registry lists it."""

    model: ModelRef
    aliases: tuple[str, ...]
    created: datetime
    run_id: str
    description: str
    tags: Mapping[str, str]


class Registry(TrackedRuns):
    """Runs and model versions at the home's tracking address."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self._cache = BundleCache(home)

    def register(self, name: str, bundle: Path, *, run_id: str) -> str:
        """Logs a bundle as a pyfunc model, registers it as challenger, and answers its version.

        A bundle that is already registered under this name keeps its version.
        """
        spec = load_spec(bundle)
        if (known := self._version_of(name, spec.digest)) is not None:
            if known != self.champion(name):
                self._client.set_registered_model_alias(name, CHALLENGER, known)
            return known
        model_id = self._log_model(bundle, spec, run_id)
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        # Its tags come with it: a version without a digest could be found by nobody.
        made = self._client.create_model_version(
            name, f"models:/{model_id}", run_id=run_id, model_id=model_id,
            tags=model_version.tags(spec), description=model_version.describe(spec),
        )  # fmt: skip
        self._client.set_registered_model_alias(name, CHALLENGER, str(made.version))
        return str(made.version)

    def _log_model(self, bundle: Path, spec: BundleSpec, run_id: str) -> str:
        mlflow.set_tracking_uri(self._uri)
        with reaching(self._uri):
            return model_version.log_bundle(bundle, spec, run_id=run_id)

    def promote(self, name: str, version: str, *, approver: str, reason: str) -> str | None:
        """Makes a version the champion; answers the one that was it, which becomes `previous`.

        Raises:
            ArtifactError: there is no such version.
        """
        model = self.ref(name, version)
        decision = self.promotions.promote(model, approver=approver, reason=reason)
        return version if decision is None else decision.before

    @cached_property
    def promotions(self) -> Promotions:
        """The history of decisions, and the ways to add to it."""
        return Promotions(
            self._client,
            experiment=lambda: self._experiment(HISTORY_EXPERIMENT),
            spec_of=self.spec,
            lock=self._home.root / ".promotions.lock",
        )

    def names(self) -> tuple[str, ...]:
        """All registered models."""
        found, token = [], None
        while True:
            page = self._client.search_registered_models(page_token=token)
            found += [str(model.name) for model in page]
            if not (token := page.token):
                return tuple(sorted(found))

    def versions(self, name: str) -> tuple[Version, ...]:
        """All versions of a model, the newest first.

        Raises:
            ArtifactError: there is no such model.
        """
        aliases = self._aliases(name)
        return tuple(
            _version(found, aliases)
            for found in sorted(self._search(name), key=lambda v: int(v.version), reverse=True)
        )

    def version(self, name: str, version: str) -> Version:
        """One version.

        Raises:
            ArtifactError: there is no such version.
        """
        return _version(self._get_version(name, version), self._aliases(name))

    def resolve(self, name: str, which: str) -> str:
        """The version behind `which`: an alias, with or without its `@`, or a version itself.

        Raises:
            ArtifactError: there is no such model, alias or version.
        """
        if which.isdecimal():
            return str(self._get_version(name, which).version)
        alias = which.removeprefix("@")
        if (version := alias_version(self._client, name, alias)) is None:
            raise ArtifactError(f"no model models:/{name}@{alias}: {self._known(name)}")
        return version

    def ref(self, name: str, version: str) -> ModelRef:
        """A version with its digest.

        Raises:
            ArtifactError: there is no such version, or not of ours.
        """
        digest = self._get_version(name, version).tags.get(DIGEST_TAG)
        if digest is None:
            raise ArtifactError(f"models:/{name}/{version} was not registered by Nightmill")
        return ModelRef(name=name, version=version, digest=digest)

    def spec(self, model: ModelRef) -> BundleSpec:
        """The description of a version's bundle; nothing else of it is fetched.

        Raises:
            ArtifactError: it cannot be had, or is not what was registered.
            TransientError: where it lies cannot be reached.
        """
        return self._cache.spec(model)

    def champion(self, name: str) -> str | None:
        """The champion's version, None where there is none yet."""
        return alias_version(self._client, name, CHAMPION)

    def fetch(self, uri: str) -> tuple[ModelRef, Path]:
        """The exact model behind a URI and its bundle in a local folder, digests checked.

        Raises:
            ConfigError: the URI is not `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `path:DIR`.
            ArtifactError: there is no such model, alias or version, or its files are damaged.
            TransientError: the registry does not answer; what an alias meant is not guessed at.
        """
        if uri.startswith("path:"):
            return _local(Path(uri.removeprefix("path:")))
        match = _MODEL_URI.match(uri)
        if match is None:
            raise ConfigError(
                f"score.model {uri!r}: expected models:/NAME@ALIAS, models:/NAME/VERSION or "
                f"path:DIR"
            )
        name = match["name"]
        version = match["version"] or alias_version(self._client, name, match["alias"])
        if version is None:
            raise ArtifactError(
                f"no model {uri}: {self._known(name)}; train one with `nightmill train {name}`"
            )
        model = self.ref(name, version)
        bundle = self._cache.bundle(model)
        self._cache.remember(uri, model)
        return model, bundle

    def _aliases(self, name: str) -> dict[str, str]:
        try:
            return {k: str(v) for k, v in self._client.get_registered_model(name).aliases.items()}
        except MlflowException as error:
            raise ArtifactError(self._known(name)) from error

    def _get_version(self, name: str, version: str) -> Any:
        try:
            return self._client.get_model_version(name, version)
        except MlflowException as error:
            raise ArtifactError(
                f"no model models:/{name}/{version}: {self._known(name)}"
            ) from error

    def _known(self, name: str) -> str:
        try:
            aliases = self._client.get_registered_model(name).aliases
        except MlflowException:
            names = ", ".join(self.names())
            return f"no model named {name!r} is registered (registered: {names or 'none'})"
        listed = ", ".join(f"{alias} version {version}" for alias, version in aliases.items())
        return f"model {name!r} has {listed or 'no aliases'}"

    def _version_of(self, name: str, digest: str) -> str | None:
        same = [found for found in self._search(name) if found.tags.get(DIGEST_TAG) == digest]
        return str(same[0].version) if same else None

    def _search(self, name: str) -> list[Any]:
        found, token = [], None
        while True:
            page = self._client.search_model_versions(f"name = '{name}'", page_token=token)
            found += page
            if not (token := page.token):
                return found


def _version(found: Any, aliases: Mapping[str, str]) -> Version:
    version = str(found.version)
    return Version(
        ModelRef(name=found.name, version=version, digest=found.tags.get(DIGEST_TAG, "")),
        tuple(sorted(alias for alias, holder in aliases.items() if holder == version)),
        datetime.fromtimestamp(found.creation_timestamp / 1000, UTC),
        str(found.run_id or ""),
        str(found.description or ""),
        dict(found.tags),
    )


def _local(folder: Path) -> tuple[ModelRef, Path]:
    digest = load_spec(folder).digest
    return ModelRef(name=folder.name, version=LOCAL_VERSION, digest=digest), folder
