"""What all sections of a task file have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of all sections: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
