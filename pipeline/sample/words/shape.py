"""The shape of one language's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Pool = tuple[str, ...]
Pools = Mapping[str, Pool]


@dataclass(frozen=True)
class TicketWords:
    """Templates of a ticket's parts.

    `complaints` is keyed by scenario, `subjects` and `asks` by queue, `urgency` by priority.
    `plain_subjects` tell nothing about the queue. `fillers` fit into any story; `boilerplate` is
    what the support desk and its mail server add to a thread.
    """

    greetings: Pool
    intros: Pool
    complaints: Pools
    asks: Pools
    urgency: Pools
    subjects: Pools
    plain_subjects: Pool
    fillers: Pool
    boilerplate: Pool
    forwards: Pool
    quote_lines: Pool
    closings: Pool


@dataclass(frozen=True)
class ReviewWords:
    """Templates of a review's parts.

    `praise`, `blame` and `shrug` are keyed by topic; `verdicts` and `sarcasm` speak of no topic.
    """

    praise: Pools
    blame: Pools
    shrug: Pools
    verdicts: Pools
    sarcasm: Pool
    fillers: Pool
    turns: Pool


@dataclass(frozen=True)
class Language:
    """One language: its templates, and `slots` with names, products, places and the like."""

    code: str
    slots: Pools
    tickets: TicketWords
    reviews: ReviewWords
    spaced: bool = True
