"""When a text fits none of a head's labels: what a bundle has learnt about that."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

ScopeMethod = Literal["max_probability", "energy"]
SCOPE_METHODS: tuple[ScopeMethod, ...] = get_args(ScopeMethod)


class ScopeRule(BaseModel):
    """A text that scores under `threshold` goes to people; measured on validation texts.

    `kept` is the share of texts inside that stay with the model, `caught` that of texts outside
    that go to people, and `separation` the AUROC between both: None where no text outside is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: ScopeMethod
    threshold: float
    kept: float
    caught: float | None = None
    rows_inside: int
    rows_outside: int
    separation: float | None = None
