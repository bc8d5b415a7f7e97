"""Fields of trigger forms.

Airflow's form takes an empty field that may not be null for a missing one and blocks its button,
and a default of null or an enum with null breaks it. So every field is a text, a whole number or a
yes or no, its default is never null, and a text that may be left empty has the type
`["string", "null"]` with "" as its default: the form sends null for what somebody has emptied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ADDRESS_CHARS = 500


def text(title: str, description: str, **rest: Any) -> Param:
    """A text that may be left empty; `rest` is of JSON schema, or the form's `section`."""
    return Param("", type=["string", "null"], title=title, description=description, **rest)


def number(
    title: str, description: str, *, section: str, maximum: int | None = None, own: int = 0
) -> Param:
    """A whole number from `own` on, which stands for the task's own setting."""
    bound = {} if maximum is None else {"maximum": maximum}
    return Param(
        own,
        type="integer",
        minimum=own,
        title=title,
        description=f"{description} {own}: the task's own.",
        section=section,
        **bound,
    )


def yes_or_no(title: str, description: str, *, section: str, default: bool = False) -> Param:
    """A switch."""
    return Param(default, type="boolean", title=title, description=description, section=section)


def choice(title: str, description: str, *, section: str, options: Sequence[str]) -> Param:
    """One of some texts; the first one unless another is chosen."""
    return Param(
        options[0],
        type="string",
        enum=list(options),
        title=title,
        description=description,
        section=section,
    )
