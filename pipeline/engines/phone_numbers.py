"""Telephone numbers, by the numbering plans in `phonenumbers`."""

from __future__ import annotations

import re
from functools import lru_cache

import phonenumbers
from phonenumbers import NumberParseException, ValidationResult

from pipeline.pii import PHONE
from schemas.errors import ConfigError, did_you_mean

# A date or a time after a number is none of its digits, and opening hours are no number.
_NO_DATE = (
    r"(?![0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}(?![0-9])"
    r"|[0-9]{1,2}:[0-9]{2}|[0-9]{1,2}\.[0-9]{2} ?[-–] ?[0-9]{1,2}\.[0-9]{2}(?![.0-9]))"
)
_GAP = r"[ \u00a0./()（）–-]{0,3}"
_EXTENSION = r"(?:[ \u00a0]?(?:ext\.?|x|#|Durchwahl|DW)[ \u00a0.:]?[0-9]{1,5})?(?![.,]?[0-9])"


def _pattern(start: str, *, fewest: int, most: int) -> re.Pattern[str]:
    digits = rf"(?:{_GAP}{_NO_DATE}[0-9]){{{fewest},{most}}}+"
    return re.compile(rf"(?<![\w+]){start}{digits}{_EXTENSION}", re.IGNORECASE | re.ASCII)


_INTERNATIONAL = _pattern(r"[(（]?(?P<plus>\+|00)", fewest=7, most=17)
_NATIONAL = _pattern(rf"(?<![0-9][.,/:-])(?<![#$€£]){_NO_DATE}[(（]?(?=[0-9])", fewest=7, most=14)
_LAST_GROUP = re.compile(r"[^0-9]+[0-9]+[^0-9]*$")
_THOUSANDS = re.compile(r"\+?[0-9]{1,3}(?:[ .,][0-9]{3})+")
_AMOUNT = re.compile(r"[0-9]{1,3}(?:[.,][0-9]{3})+")
_NOT_A_DIGIT = re.compile(r"[^0-9]")
_MAX_GROUPS_LEFT_OUT = 2
_FEWEST_DIGITS = 9


class PhoneMask:
    """Masks telephone numbers: international forms always, national ones of `regions`.

    Raises:
        ConfigError: a region is none that has telephone numbers.
    """

    def __init__(self, regions: tuple[str, ...] = ()) -> None:
        for region in regions:
            if region not in phonenumbers.SUPPORTED_REGIONS:
                hint = did_you_mean(region, phonenumbers.SUPPORTED_REGIONS)
                raise ConfigError(
                    f"clean.phone_regions: no region {region!r}{hint}; expected ISO 3166 codes "
                    f"such as DE or US"
                )
        self._regions = regions

    def __call__(self, text: str) -> str:
        """The text with each telephone number as `[PHONE]`."""
        if "+" in text or "00" in text:
            text = _INTERNATIONAL.sub(_masked_international, text)
        return _NATIONAL.sub(self._masked_national, text) if self._regions else text

    def _masked_national(self, match: re.Match[str]) -> str:
        for number in _shorter(match[0]):
            bare = number.isdigit() and not number.startswith("0")
            if bare or _AMOUNT.fullmatch(number):  # an order number, an amount
                continue
            if any(_is_national(number, region) for region in self._regions):
                return PHONE + match[0][len(number) :]
        return match[0]


def _masked_international(match: re.Match[str]) -> str:
    for number in _shorter(match[0]):
        if _is_international(number):
            return PHONE + match[0][len(number) :]
    return match[0]


def _shorter(candidate: str) -> list[str]:
    """The candidate, and what is left without its last groups of digits: they may be no part."""
    found = [candidate]
    for _ in range(_MAX_GROUPS_LEFT_OUT):
        found.append(_LAST_GROUP.sub("", found[-1]))
    return list(dict.fromkeys(found))


@lru_cache(maxsize=4096)
def _is_international(text: str) -> bool:
    written = text.lstrip("(（")
    number = _parsed(f"+{written.removeprefix('00')}" if written.startswith("00") else written)
    if number is None:
        return False
    if phonenumbers.is_valid_number(number):
        return True
    # A plus is nearly always a telephone; numbers set aside for fiction or not yet given out have
    # the right length. Amounts (`+100 000 000`) do too, so groups of three need a real number.
    digits = sum(char.isdigit() for char in written)
    return (
        written.startswith("+")
        and digits >= _FEWEST_DIGITS
        and not _THOUSANDS.fullmatch(written)
        and phonenumbers.is_possible_number_with_reason(number) == ValidationResult.IS_POSSIBLE
    )


@lru_cache(maxsize=4096)
def _is_national(text: str, region: str) -> bool:
    number = _parsed(text, region)
    if number is None or not phonenumbers.is_valid_number_for_region(number, region):
        return False
    # With all the digits that people of the region write: where a number begins with a 0, an
    # article of a law or a fraction, `62-20-101`, is none without it.
    written = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
    return _NOT_A_DIGIT.sub("", written) == _NOT_A_DIGIT.sub("", text)


def _parsed(text: str, region: str | None = None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(text, region)
    except NumberParseException:
        return None
