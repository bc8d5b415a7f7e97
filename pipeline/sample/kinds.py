"""The two kinds of sample records: how they are written, named and stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.sample.faults import CSV_FAULT_RATES, JSONL_FAULT_RATES, Fault
from pipeline.sample.reviews import write_review
from pipeline.sample.tickets import write_ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from pipeline.sample.draft import Draft
    from pipeline.sample.formats import FormatName


@dataclass(frozen=True)
class Kind:
    """One kind of record; `columns` are those of incoming files, id and time first."""

    task: str
    format_name: FormatName
    id_prefix: str
    columns: tuple[str, ...]
    text_columns: tuple[str, ...]
    label_columns: tuple[str, ...]
    fault_rates: Mapping[Fault, float]
    write: Callable[[Random], Draft]

    @property
    def id_column(self) -> str:
        """The column that names a record."""
        return self.columns[0]


KINDS = (
    Kind(
        task="tickets",
        format_name="csv",
        id_prefix="T",
        columns=("ticket_id", "created_at", "channel", "subject", "body"),
        text_columns=("subject", "body"),
        label_columns=("queue", "priority"),
        fault_rates=CSV_FAULT_RATES,
        write=write_ticket,
    ),
    Kind(
        task="reviews",
        format_name="jsonl",
        id_prefix="R",
        columns=("review_id", "created_at", "product", "stars", "text"),
        text_columns=("text",),
        label_columns=("sentiment", "topics"),
        fault_rates=JSONL_FAULT_RATES,
        write=write_review,
    ),
)
