"""One sample file in memory: drafts, then repeated texts, then dirt, then bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from pipeline.sample.chance import happens
from pipeline.sample.draft import Draft
from pipeline.sample.faults import Fault, draw_faults, spoil_values
from pipeline.sample.formats import encode, header
from pipeline.sample.text_dirt import soil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from pipeline.sample.kinds import Kind

DUPLICATE_TEXT_RATE = 0.05
_SECONDS_PER_DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Row:
    """A row as its file has it; `labels` are what people decide if `fault` is None."""

    record_id: str
    labels: Mapping[str, Any]
    fault: Fault | None
    content: bytes


def make_rows(
    kind: Kind, stamps: Sequence[datetime], rng: Random, *, labelled: bool, dirt_scale: float
) -> list[Row]:
    """One row a time stamp, in their order; the dirt rates are multiplied by `dirt_scale`."""
    drafts = _make_drafts(kind, len(stamps), rng, dirt_scale=dirt_scale)
    faults = draw_faults(len(stamps), kind.fault_rates, rng, scale=dirt_scale)
    rows: list[Row] = []
    sound_ids: list[str] = []
    for number, (stamp, draft, fault) in enumerate(zip(stamps, drafts, faults, strict=True), 1):
        record_id = f"{kind.id_prefix}{stamp:%Y%m%d}-{number:05d}"
        values = {
            kind.columns[0]: record_id,
            kind.columns[1]: f"{stamp:%Y-%m-%dT%H:%M:%SZ}",
            **draft.values,
            **(draft.labels if labelled else {}),
        }
        content = _encode(kind, values, rng, fault=fault, earlier_ids=sound_ids)
        rows.append(Row(record_id, draft.labels, fault, content))
        if fault is None:
            sound_ids.append(record_id)
    return rows


def file_content(kind: Kind, rows: Sequence[Row], *, labelled: bool) -> bytes:
    """The bytes of an incoming or a labelled file."""
    columns = (*kind.columns, *(kind.label_columns if labelled else ()))
    return header(columns, kind.format_name) + b"".join(row.content for row in rows)


def outcome_content(kind: Kind, rows: Sequence[Row], rng: Random) -> bytes:
    """The bytes of an outcomes file: the decision about every sound row."""
    lines = [
        encode({kind.id_column: row.record_id, **row.labels}, kind.format_name, fault=None, rng=rng)
        for row in rows
        if row.fault is None
    ]
    return header((kind.id_column, *kind.label_columns), kind.format_name) + b"".join(lines)


def draw_stamps(days: Sequence[date], count: int, rng: Random) -> list[datetime]:
    """`count` times spread over the days, ascending."""
    return sorted(
        datetime.combine(rng.choice(days), time())
        + timedelta(seconds=rng.randrange(_SECONDS_PER_DAY))
        for _ in range(count)
    )


def _make_drafts(kind: Kind, count: int, rng: Random, *, dirt_scale: float) -> list[Draft]:
    """Drafts with dirty texts; some have exactly the text of an earlier one."""
    drafts: list[Draft] = []
    for _ in range(count):
        if drafts and happens(rng, DUPLICATE_TEXT_RATE * dirt_scale):
            drafts.append(rng.choice(drafts))
            continue
        draft = kind.write(rng)
        body = kind.text_columns[-1]
        text = soil(draft.values[body], rng, scale=dirt_scale)
        drafts.append(Draft({**draft.values, body: text}, draft.labels))
    return drafts


def _encode(
    kind: Kind,
    values: dict[str, Any],
    rng: Random,
    *,
    fault: Fault | None,
    earlier_ids: Sequence[str],
) -> bytes:
    if fault:
        values = spoil_values(
            values,
            fault,
            rng,
            id_column=kind.id_column,
            text_columns=kind.text_columns,
            earlier_ids=earlier_ids,
        )
    return encode(values, kind.format_name, fault=fault, rng=rng)
