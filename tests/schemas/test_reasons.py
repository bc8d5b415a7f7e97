"""The closed list of reasons, and how a person names one."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError
from schemas.reasons import Reason, parse_reasons


def test_reasons_come_once_and_in_the_order_of_the_list() -> None:
    names = ["wrong_type", "missing_id", "wrong_type"]
    assert parse_reasons(names) == (Reason.MISSING_ID, Reason.WRONG_TYPE)
    assert parse_reasons([]) == ()


def test_an_unknown_reason_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"unknown reason 'mising_text' \(did you mean 'missing_"):
        parse_reasons(["wrong_type", "mising_text"])
