"""When a text fits none of a head's labels: what a bundle has learnt about that."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

ScopeMethod = Literal["max_probability", "energy", "knn"]
SCOPE_METHODS: tuple[ScopeMethod, ...] = get_args(ScopeMethod)


class ScopeRule(BaseModel):
    """A text that scores under `threshold` goes to people; measured on validation texts.

    `kept` is the share of texts inside that stay with the model, `caught` that of texts outside
    that go to people, and `separation` the AUROC between both: None where no text outside is known.
    `column` is where in the model's output the score of the method `knn` stands; others have none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: ScopeMethod
    threshold: float
    kept: float
    caught: float | None = None
    rows_inside: int
    rows_outside: int
    separation: float | None = None
    column: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _column_suits_the_method(self) -> Self:
        if (self.column is None) == (self.method == "knn"):
            needs = "needs" if self.method == "knn" else "takes no"
            raise ValueError(f"a rule by {self.method!r} {needs} column of the model's output")
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """What of the rule goes into a bundle's digest: those without a column stay as they are."""
        return self.model_dump(exclude={"column"} if self.column is None else None)
