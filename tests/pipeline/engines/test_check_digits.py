from __future__ import annotations

import pytest

from pipeline.engines.check_digits import mask_cards, mask_ibans


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111111111111111", "[CARD]"),
        ("5500 0000 0000 0004, 5500-0000-0000-0004", "[CARD], [CARD]"),
        ("2223003122003222", "[CARD]"),
        ("378282246310005 3782 822463 10005", "[CARD] [CARD]"),
        ("3056 930902 5904", "[CARD]"),
        ("6011111111111117 3530111333300000 6200000000000005", "[CARD] [CARD] [CARD]"),
        ("卡号4111111111111111已", "卡号[CARD]已"),
        ("4222222222222", "[CARD]"),
        ("6759649826438453 4111 1111 1111 1111 12/27", "[CARD] [CARD] 12/27"),
        ("4111111111111112 4111 1111 1111 1112", None),  # not Luhn
        ("9400111899223100000006 1Z4111111111111111", None),  # tracking
        ("1111111111111117 0000000000000000 1732900000000", None),  # no network
        ("411 1111 1111 11111", None),  # no card is printed like this
        ("x/4111111111111111 shop-4111111111111111 0.4111111111111111", None),
        ("4006381333931", None),  # an article number
    ],
)
def test_mask_cards(text, expected):
    assert mask_cards(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DE89370400440532013000.", "[IBAN]."),
        ("iban de89 3704 0044 0532 0130 00 bic COBADEFF", "iban [IBAN] bic COBADEFF"),
        ("GB82-WEST-1234-5698-7654-32", "[IBAN]"),
        ("FR14 2004 1010 0505 0001 3M02 606, NL91ABNA0417164300", "[IBAN], [IBAN]"),
        ("NO9386011117947 MT84MALT011000012345MTLCAST001S", "[IBAN] [IBAN]"),
        ("DE88370400440532013000 XX89370400440532013000", None),
        ("DE89370400440532013000X ADE89370400440532013000", None),
        ("AB12 CD34 order DE12 3456", None),
    ],
)
def test_mask_ibans(text, expected):
    assert mask_ibans(text) == (text if expected is None else expected)
