"""What a model's address meant when the registry was last asked."""

from __future__ import annotations

from datetime import datetime

from schemas.manifest import Document, ModelRef


class Resolved(Document):
    """The exact model behind `address` (`models:/NAME@ALIAS`), as the registry said `at` a time."""

    address: str
    model: ModelRef
    at: datetime
