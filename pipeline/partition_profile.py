"""What a partition's rows look like without their texts: lengths, checked values, outcomes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from pipeline.rows import RawRow, Record, Rejected
from pipeline.validate import cell_text, id_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.reasons import Reason
    from schemas.task import TaskConfig

MAX_EXAMPLES = 3


class PartitionProfile:
    """One line for each row of a partition, as columns; no text is kept, only its length."""

    def __init__(self, task: TaskConfig) -> None:
        self._task = task
        self.rows = 0
        self.by_reason: Counter[Reason] = Counter()
        self.examples: dict[Reason, list[str]] = defaultdict(list)
        self.columns: dict[str, list[Any]] = {name: [] for name in self._names()}

    def add(self, row: RawRow | Rejected, outcome: Record | Rejected) -> None:
        """Takes in a row as it was read, and what became of it."""
        self.rows += 1
        if isinstance(outcome, Rejected):
            self._count(outcome)
        line = self._line(row.values) if isinstance(row, RawRow) else {}
        line["row_rejected"] = float(isinstance(outcome, Rejected))
        if "record_id" not in line:
            line["record_id"] = outcome.record_id
        for name, values in self.columns.items():
            values.append(line.get(name))

    @property
    def rejected(self) -> int:
        """Number of rows that would not be scored."""
        return self.by_reason.total()

    def _names(self) -> tuple[str, ...]:
        texts = [f"{column}_chars" for column in self._task.data.text_columns]
        names = ["record_id", *texts, "text_chars", *self._task.contract.columns, "row_rejected"]
        return tuple(dict.fromkeys(names))

    def _line(self, values: Mapping[str, Any]) -> dict[str, Any]:
        data = self._task.data
        line: dict[str, Any] = {
            name: cell_text(values.get(name)) for name in self._task.contract.columns
        }
        chars = 0
        for column in data.text_columns:
            text = values.get(column)
            if isinstance(text, str) and text.strip():
                line[f"{column}_chars"] = len(text)
                chars += len(text) + bool(chars)  # parts are joined by one character
        line["text_chars"] = chars or None
        if data.id_column:
            line["record_id"] = id_text(values.get(data.id_column))
        return line

    def _count(self, rejected: Rejected) -> None:
        self.by_reason[rejected.reason] += 1
        examples = self.examples[rejected.reason]
        if len(examples) < MAX_EXAMPLES:
            place = f"{rejected.source_file}:{rejected.source_row}"
            examples.append(rejected.record_id or place)
