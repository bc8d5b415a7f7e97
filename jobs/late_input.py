"""Input that is there, is not there yet, or came after its night was scored."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pipeline.publish import Partition
from pipeline.survey import find_inputs
from schemas.errors import ArtifactError, DataContractError
from schemas.fingerprint import digest_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.source import Source
    from schemas.home import Home
    from schemas.manifest import InputFile
    from schemas.task import TaskConfig


def is_there(location: str, home: Home, day: dt.date) -> bool:
    """Whether any file lies at a location that may hold `{date}`.

    Raises:
        ConfigError: its address cannot be used.
        TransientError: its storage cannot be reached.
    """
    try:
        return bool(find_inputs(location, home, date=day))
    except DataContractError:
        return False


def changed_since_scored(
    task: TaskConfig, home: Home, days: Iterable[dt.date]
) -> tuple[dt.date, ...]:
    """The published dates whose files are not those of their manifest any more, in order.

    Files of the home are compared by size and, where they were written after the publication, by
    digest; files far away by their names alone. A date whose files are all gone was tidied up, and
    has not changed.

    Raises:
        ConfigError, TransientError: see `is_there`.
    """
    return tuple(day for day in sorted(days) if _has_changed(task, home, day))


def _has_changed(task: TaskConfig, home: Home, day: dt.date) -> bool:
    partition = Partition(home, task.name, day)
    try:
        manifest = partition.current()
        sources = find_inputs(task.data.incoming, home, date=day)
    except (ArtifactError, DataContractError):
        return False
    if manifest is None:
        return False
    scored = {file.name: file for file in manifest.inputs}
    if {source.name_in(home) for source in sources} != scored.keys():
        return True
    publications = partition.publications()
    written = dt.datetime.fromisoformat(publications[-1].published_at) if publications else None
    return any(_differs(source, scored, home, written) for source in sources)


def _differs(
    source: Source, scored: Mapping[str, InputFile], home: Home, published: dt.datetime | None
) -> bool:
    if source.path is None:
        return False
    file, facts = scored[source.name_in(home)], source.path.stat()
    if facts.st_size != file.bytes:
        return True
    # Publication times are whole seconds, and a file may be copied while its night is scored.
    margin = dt.timedelta(hours=1)
    written = dt.datetime.fromtimestamp(facts.st_mtime, dt.UTC)
    if published is not None and written < published - margin:
        return False
    return digest_of_file(source.path) != file.sha256
