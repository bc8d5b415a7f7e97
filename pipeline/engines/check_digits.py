"""Payment cards and IBANs, told from other long numbers by their check digits (python-stdnum)."""

from __future__ import annotations

import re
from functools import cache

from stdnum import ean, iban, luhn, numdb

from pipeline.pii import CARD, IBAN

_GAP = r"[ \u00a0.-]"
# The digit comes before what must not stand before it: then the engine skips to digits at once.
# As cards print them: whole, in fours, or 4-6-5 (American Express) and 4-6-4 (Diners).
_CARD = re.compile(
    r"[0-9](?<![\w/][0-9])(?<![0-9][.,][0-9])(?<!\w-[0-9])(?:[0-9]{12,18}"
    rf"|[0-9]{{3}}(?P<fours>{_GAP})(?:[0-9]{{4}}(?P=fours)){{2}}[0-9]{{1,4}}"
    rf"(?:(?P=fours)[0-9]{{3}})?"
    rf"|[0-9]{{3}}(?P<odd>{_GAP})[0-9]{{6}}(?P=odd)[0-9]{{4,5}})(?!\w|[.,][0-9])",
    re.ASCII,  # Chinese and Thai words may stand right beside a number
)
# First digits and lengths of the networks (ISO/IEC 7812): one random number in ten has a right
# Luhn digit, and order and tracking numbers are as long as cards.
_NETWORK = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})"  # Visa
    r"|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
    r"|3[47][0-9]{13}"  # American Express
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11}"  # Diners Club
    r"|(?:6011|64[4-9][0-9]|65[0-9]{2}|62[0-9]{2}|35(?:2[89]|[3-8][0-9]))[0-9]{12,15}"
    r"|(?:50|5[6-8]|6[0-9])[0-9]{11,17}"  # Maestro, RuPay
)
_NOT_A_DIGIT = re.compile(r"[^0-9]")


def mask_cards(text: str) -> str:
    """The text with each payment card number as `[CARD]`."""
    return _CARD.sub(_masked_card, text)


def _masked_card(match: re.Match[str]) -> str:
    digits = _NOT_A_DIGIT.sub("", match[0])
    if not _NETWORK.fullmatch(digits) or not luhn.is_valid(digits):
        return match[0]
    # A German article number has 13 digits and begins with 4, as old Visa cards do.
    return match[0] if len(digits) == 13 and ean.is_valid(digits) else CARD


# The check digits, behind two letters that begin a word.
_CHECK_DIGITS = re.compile(
    r"[0-9](?<=[A-Za-z]{2}[0-9])(?<![^\W_][A-Za-z]{2}[0-9])[0-9](?=[ \u00a0-]?[0-9A-Za-z]{4})",
    re.ASCII,
)


def mask_ibans(text: str) -> str:
    """The text with each IBAN, spaced or not, as `[IBAN]`; its check digits must be right."""
    parts: list[str] = []
    position = 0
    for check_digits in _CHECK_DIGITS.finditer(text):
        start = check_digits.start() - 2
        whole = _iban_of(text[start : start + 2].upper())
        if start < position or whole is None:
            continue
        match = whole.match(text, start)
        if match and _is_iban(match[0]):
            parts += [text[position:start], IBAN]
            position = match.end()
    return "".join([*parts, text[position:]]) if parts else text


def _is_iban(text: str) -> bool:
    return bool(iban.is_valid(text.replace("\u00a0", ""), check_country=False))


@cache
def _iban_of(country: str) -> re.Pattern[str] | None:
    """A pattern of as many characters as the country's IBANs have; None where it has none."""
    structure = numdb.get("iban").info(f"{country}00")[0][1].get("bban")
    if structure is None:
        return None
    length = 2 + 2 + sum(map(int, re.findall(r"[0-9]+", structure)))
    return re.compile(
        rf"[A-Za-z]{{2}}[0-9]{{2}}(?:[ \u00a0-]?[0-9A-Za-z]){{{length - 4}}}(?![0-9A-Za-z])"
    )
