"""Ordered label sets: the order is part of the model, so it is hashed and compared at load."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import ConfigError, DataContractError, did_you_mean
from schemas.fingerprint import digest_of


@dataclass(frozen=True)
class LabelSet:
    """The labels of one head, in the order of the head's logits.

    Raises:
        ConfigError: a label is repeated, or there are fewer than two.
    """

    head: str
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        repeated = sorted({label for label in self.labels if self.labels.count(label) > 1})
        if repeated:
            raise ConfigError(f"heads.{self.head}.labels: repeated label {repeated[0]!r}")
        if len(self.labels) < 2:
            raise ConfigError(
                f"heads.{self.head}.labels: got {len(self.labels)} labels, need at least 2"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """Hash over names and order; two heads are compatible only if it is equal."""
        return digest_of([self.head, list(self.labels)])

    def index(self, label: str) -> int:
        """Position of `label` among the head's logits.

        Raises:
            DataContractError: the label is not in the set.
        """
        try:
            return self.labels.index(label)
        except ValueError:
            hint = did_you_mean(label, self.labels)
            raise DataContractError(
                f"head {self.head!r}: unknown label {label!r}{hint}; "
                f"add it to heads.{self.head}.labels or correct the data"
            ) from None
