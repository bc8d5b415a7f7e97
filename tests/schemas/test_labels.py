"""Label sets: the order is part of the model."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError, DataContractError
from schemas.labels import LabelSet


def test_index_follows_the_given_order() -> None:
    labels = LabelSet("queue", ("shipping", "billing"))
    assert (labels.index("shipping"), labels.index("billing"), len(labels)) == (0, 1, 2)


def test_the_digest_depends_on_order_names_and_head() -> None:
    """FAILURES row 42: a reordered label set must never pass for the same one."""
    base = LabelSet("queue", ("a", "b"))
    others = [
        LabelSet("queue", ("b", "a")),
        LabelSet("queue", ("a", "c")),
        LabelSet("other", ("a", "b")),
        LabelSet("queue", ("a,b", "c")),
    ]
    assert base.digest == LabelSet("queue", ("a", "b")).digest
    assert len({base.digest, *(other.digest for other in others)}) == 5


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("a", "b", "a"), r"^heads\.queue\.labels: repeated label 'a'$"),
        (("a",), r"^heads\.queue\.labels: got 1 labels, need at least 2$"),
        ((), r"got 0 labels"),
    ],
)
def test_an_unsound_set_is_refused(labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LabelSet("queue", labels)


def test_an_unknown_label_is_answered_with_the_nearest() -> None:
    labels = LabelSet("queue", ("billing", "shipping"))
    with pytest.raises(DataContractError, match=r"label 'biling' \(did you mean 'billing'\?\)"):
        labels.index("biling")
