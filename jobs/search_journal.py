"""What trials of a search have reported, kept line by line, so that a killed search goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from schemas import errors

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.errors import NightmillError


@dataclass(frozen=True)
class Told:
    """A trial's epoch: macro-F1 of the validation records, and seconds since the trial began."""

    trial: int
    epoch: int
    macro_f1: float
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A trial that ended with an error of ours, by the name of its class."""

    trial: int
    kind: str
    message: str

    @property
    def error(self) -> NightmillError:
        """The error, to be raised or told."""
        made: NightmillError = getattr(errors, self.kind)(self.message)
        return made


class Journal:
    """A JSONL file with one writer, the driver; a last line that a kill cut off is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told: dict[int, list[Told]] = {}
        self.failed: dict[int, Failed] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        path.write_bytes(whole)
        for line in whole.decode().splitlines():
            self._take(json.loads(line))

    def epochs_of(self, trial: int) -> list[Told]:
        """What a trial has reported, epoch by epoch."""
        return list(self._told.get(trial, ()))

    def note(self, line: Told | Failed) -> bool:
        """Keeps a trial's next epoch or its end; answers False for an epoch that is known.

        A trial that does an epoch again gets the same number, since its seed is the same.
        """
        if isinstance(line, Told) and line.epoch <= len(self.epochs_of(line.trial)):
            return False
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(line)) + "\n")
        self._take(asdict(line))
        return True

    def _take(self, line: dict[str, Any]) -> None:
        if "kind" in line:
            self.failed[line["trial"]] = Failed(**line)
        else:
            self._told.setdefault(line["trial"], []).append(Told(**line))
