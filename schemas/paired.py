"""Two models that answered the same records."""

from __future__ import annotations

from schemas.manifest import Count, Document

Interval = tuple[float, float]


class PairedResult(Document):
    """One head of both models on `rows` records; gains are new less champion, with 95 % intervals.

    `only_new` and `only_champion` count records that one alone gets right, all labels of them;
    `p_value` is McNemar's exact test on these (McNemar 1947).
    """

    rows: Count
    accuracy: float
    accuracy_gain: float
    accuracy_gain_interval: Interval
    macro_f1: float
    macro_f1_gain: float
    macro_f1_gain_interval: Interval
    only_new: Count
    only_champion: Count
    p_value: float

    @property
    def verdict(self) -> str:
        """What the interval of the gain in macro-F1 says."""
        low, high = self.macro_f1_gain_interval
        return "better" if low > 0 else "worse" if high < 0 else "no clear difference"
