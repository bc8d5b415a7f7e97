"""What a worker that dies cannot tell any more: that it had begun a shard.

A shard's attempts are lines of a small file that only grows until the shard is done. It is no
journal against power cuts: a kernel that lives on keeps what a dead process wrote.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BEGUN, _RETURNED, _ALIVE, _ENDED = "begun", "returned", "alive", "ended"


class Attempts:
    """The attempts at one shard."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> int:
        """Notes a new attempt; answers how many before it ended their worker."""
        words = Counter(line.split()[0] for line in self._lines())
        self._append(_BEGUN)
        return words[_BEGUN] - words[_RETURNED]

    def returned(self) -> None:
        """Notes that the attempt failed in good order: its worker is still there."""
        self._append(_RETURNED)

    def alive(self) -> None:
        """Notes that work on the shard goes on."""
        self._append(_ALIVE)

    def ended_alone(self, row: int) -> None:
        """Notes that a process ended in which a row stood alone."""
        self._append(f"{_ENDED} {row}")

    def culprits(self, times: int) -> tuple[int, ...]:
        """The rows that have ended a process so many times while they stood alone in it."""
        ended = Counter(int(line.split()[1]) for line in self._lines() if line.startswith(_ENDED))
        return tuple(sorted(row for row, count in ended.items() if count >= times))

    def clear(self) -> None:
        """Forgets the attempts: the shard is done."""
        self._path.unlink(missing_ok=True)

    def _append(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="ascii") as file:
            file.write(line + "\n")

    def _lines(self) -> list[str]:
        try:
            text = self._path.read_text(encoding="ascii")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line]


def signs_of_life(folder: Path) -> dict[str, int]:
    """Size by name of the attempts below a folder: work went on wherever two looks differ."""
    signs = {}
    for path in sorted(folder.glob("*")):
        try:
            signs[path.name] = path.stat().st_size
        except FileNotFoundError:  # its shard was finished between the two calls
            continue
    return signs
