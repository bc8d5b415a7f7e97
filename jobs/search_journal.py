"""What trials of a search have reported, kept line by line, so that a killed search goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

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
        for line in map(json.loads, whole.decode().splitlines()):
            self._take(Failed(**line) if "kind" in line else Told(**line))

    def epochs_of(self, trial: int) -> list[Told]:
        """What a trial has reported, epoch by epoch."""
        return list(self._told.get(trial, ()))

    def note(self, line: Told | Failed) -> bool:
        """Keeps a trial's next epoch or its end; answers False where it is known.

        A trial that does an epoch again gets the same number, since its seed is the same.
        """
        if isinstance(line, Failed):
            is_known = line.trial in self.failed
        else:
            is_known = line.epoch <= len(self.epochs_of(line.trial))
        if is_known:
            return False
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(line)) + "\n")
        self._take(line)
        return True

    def _take(self, line: Told | Failed) -> None:
        if isinstance(line, Failed):
            self.failed[line.trial] = line
        else:
            self._told.setdefault(line.trial, []).append(line)
