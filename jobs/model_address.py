"""How people name a model on the command line: NAME, NAME@ALIAS or NAME/VERSION."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.engines.registry import CHAMPION
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from pipeline.engines.registry import Registry, Version

_ADDRESS = re.compile(
    r"^(models:/)?(?P<name>[^/@'\"`]+)(@(?P<alias>[^/@'\"`]+)|/(?P<version>\d+))?$"
)


@dataclass(frozen=True)
class ModelAddress:
    """A model's name and, where it was said, an alias (`@champion`) or a version."""

    name: str
    which: str | None = None

    def __str__(self) -> str:
        """As the registry and `score.model` write it."""
        if self.which is None:
            return f"models:/{self.name}"
        return f"models:/{self.name}{'' if self.which.startswith('@') else '/'}{self.which}"


def parse_address(text: str) -> ModelAddress:
    """What a person typed.

    Raises:
        ConfigError: it is of another form.
    """
    match = _ADDRESS.match(text)
    if match is None:
        raise ConfigError(f"model {text!r}: expected NAME, NAME@ALIAS or NAME/VERSION")
    return ModelAddress(match["name"], f"@{match['alias']}" if match["alias"] else match["version"])


def parse_name(text: str) -> str:
    """A model's name alone.

    Raises:
        ConfigError: it has an alias or a version, too, or is of another form.
    """
    address = parse_address(text)
    if address.which is not None:
        raise ConfigError(f"model {text!r}: expected a name alone, as {address.name!r}")
    return address.name


def find_version(registry: Registry, address: ModelAddress) -> Version:
    """The version that is meant: without an alias or a version, the champion, else the newest.

    Raises:
        ArtifactError: there is no such model, alias or version.
    """
    if address.which is not None:
        return registry.version(address.name, registry.resolve(address.name, address.which))
    versions = registry.versions(address.name)
    if not versions:
        raise ArtifactError(
            f"model {address.name!r} has no versions; train one with "
            f"`nightmill train {address.name}`"
        )
    return next((version for version in versions if CHAMPION in version.aliases), versions[0])
