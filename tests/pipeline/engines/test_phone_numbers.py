from __future__ import annotations

import pytest

from pipeline.engines.phone_numbers import PhoneMask

INTERNATIONAL = PhoneMask()
NATIONAL = PhoneMask(("DE", "US", "FR"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+49 30 1234567", "[PHONE]"),
        ("+49 (0)30 / 1234567, +49-170-1234567", "[PHONE], [PHONE]"),
        ("(+1) 415-555-2671 x12.", "[PHONE]."),
        ("+15551234567 +44 20 7946 0958", "[PHONE] [PHONE]"),
        ("0049 30 1234567 und (0033) 1 42 68 53 00", "[PHONE] und [PHONE]"),
        ("+81-3-1234-5678 电话（+86）10 6552 9988谢谢", "[PHONE] 电话[PHONE]谢谢"),
        ("+49 30 1234567 2026-11-28 10:30", "[PHONE] 2026-11-28 10:30"),
        ("+49 30 1234567 12.11.2026", "[PHONE] 12.11.2026"),
        ("+100 000 000 EUR, +5 +12345, 1+2, 2026+2027", None),
        ("00123456789 000000000000 0001234567", None),
        ("A+49 30 1234567 C++49", None),
        ("(030) 1234567 415-555-2671 01 42 68 53 00", None),
    ],
)
def test_international_forms(text, expected):
    assert INTERNATIONAL(text) == (text if expected is None else expected)


def test_numbers_of_regions_without_a_leading_zero():
    assert PhoneMask(("PL", "ES"))("601 234 567, 912 34 56 78") == "[PHONE], [PHONE]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(030) 1234567, 0170/1234567", "[PHONE], [PHONE]"),
        ("415-555-2671 or (415) 555-2671", "[PHONE] or [PHONE]"),
        ("01 42 68 53 00", "[PHONE]"),
        ("+49 30 1234567", "[PHONE]"),
        ("order 4155552671, 2026-11-28 10:30, 12.11.2026 14:15", None),
        ("$ 415 555 267 1.234.567,89 12 345 678", None),
        ("06.00 - 09.00 and 06.00-09.30 h", None),
        ("33 1/3 ( 1994 ) 62-20-101 -2147483648/-1", None),
        ("192.168.10.12 4111 1111 1111 1111", None),
    ],
)
def test_national_forms_of_the_regions(text, expected):
    assert NATIONAL(text) == (text if expected is None else expected)
