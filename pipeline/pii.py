"""Masks for what names a person or opens a door: e-mail and IP addresses, secrets in URLs.

Each mask is a placeholder in square brackets, such as `[EMAIL]`: the model still reads that there
was an address, and nobody reads which. No other step touches a placeholder. Masks that need a
foreign package (phones, cards, IBANs, national ids) have their own modules in `pipeline/engines`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

EMAIL: Final = "[EMAIL]"
PHONE: Final = "[PHONE]"
CARD: Final = "[CARD]"
IBAN: Final = "[IBAN]"
IP: Final = "[IP]"
SECRET: Final = "[SECRET]"  # noqa: S105
NATIONAL_ID: Final = "[ID]"
PLACEHOLDERS: Final = (EMAIL, PHONE, CARD, IBAN, IP, SECRET, NATIONAL_ID)

# Letters of scripts that put spaces between words. In Chinese or Thai an address stands right
# beside words, which must not be taken for its beginning.
_LETTER = r"0-9A-Za-z\u00c0-\u024f\u0370-\u052f"
# Every repetition is bounded: the cost is linear whatever the text.
_EMAIL = re.compile(
    rf"(?:\bmailto:)?(?<![{_LETTER}])[{_LETTER}_][{_LETTER}._%+'&=~#-]{{0,63}}[@＠]"
    rf"(?:(?:[{_LETTER}][{_LETTER}-]{{0,62}}\.){{1,8}}(?:xn--[0-9a-z-]{{1,59}}|[A-Za-z]{{2,24}})"
    rf"(?![{_LETTER}])|\[?(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}\]?(?![0-9]))",
    re.IGNORECASE,
)


def mask_emails(text: str) -> str:
    """The text with each e-mail address, `mailto:` before it included, as `[EMAIL]`."""
    if "@" not in text and "＠" not in text:
        return text
    return _EMAIL.sub(EMAIL, text)


_USER_INFO = re.compile(r"(?<=://)[^\s/?#<>\"]{1,256}@(?=[^\s@/]|\[)")
_PARAMETER = re.compile(r"(?<=[?&#;])(?P<name>[\w.%\[\]-]{1,64})=(?P<value>[^\s&#?<>\"';]+)")
_SECRET_NAMES = frozenset(
    {
        "auth", "authorization", "code_verifier", "credential", "credentials", "jwt", "key", "otp",
        "pass", "passphrase", "passwd", "phpsessid", "pin", "pwd", "sas", "sess", "sid", "sig",
        "ticket",
    }
)  # fmt: skip
_SECRET_ENDINGS = ("token", "secret", "password", "session", "sessionid", "signature", "_key",
                   "apikey", "accesskeyid", "credential")  # fmt: skip


def mask_url_secrets(text: str) -> str:
    """The text with user names, passwords, tokens and keys in URLs as `[SECRET]`.

    Host, path and all other parameters stay readable.
    """
    if "@" in text and "://" in text:
        text = _USER_INFO.sub(f"{SECRET}@", text)
    return _PARAMETER.sub(_masked_parameter, text) if "=" in text else text


def _masked_parameter(match: re.Match[str]) -> str:
    name = match["name"].lower().replace("-", "_")
    if name not in _SECRET_NAMES and not name.endswith(_SECRET_ENDINGS):
        return match[0]
    value = match["value"]
    kept = value[len(value.rstrip(".,:!?)")) :]  # the sentence's own
    return match[0] if kept == value else f"{match['name']}={SECRET}{kept}"


# The digit comes before what must not stand before it: then the engine skips to digits at once.
_IPV4 = re.compile(
    r"[0-9](?<![\w.][0-9])[0-9]{0,2}\.(?:[0-9]{1,3}\.){2}[0-9]{1,3}(?!\w|\.\w)",
    re.ASCII,  # Chinese and Thai words may stand right beside an address
)
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:|::)[0-9A-Fa-f:]{1,40}+(?:(?:\.[0-9]{1,3}){3})?"
    r"(?:%[0-9A-Za-z]{1,16})?(?!\w)",
    re.ASCII,
)
# `Version 10.0.2.15` looks like an address; all that tells is the word before it.
_VERSION_BEFORE = re.compile(
    r"(?:version|versión|versão|versione|versie|wersja|ver|rev|release|build|firmware|update|"
    r"driver|treiber|kernel|android|ios|chrome|firefox)[.:]?\s?$",
    re.IGNORECASE,
)
_LONGEST_VERSION_WORD = 10


def mask_ips(text: str) -> str:
    """The text with each IPv4 and IPv6 address as `[IP]`.

    Numbers that are no address stay, and so do `1.2.3.4` (a section or version as a rule) and what
    follows a word such as `version`.
    """
    if text.count(":") > 2:
        text = _IPV6.sub(_masked_ipv6, text)  # first, for one may end like an IPv4 address
    return _IPV4.sub(_masked_ipv4, text) if "." in text else text


def _masked_ipv4(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - _LONGEST_VERSION_WORD) : match.start()]
    if len(match[0]) == len("1.2.3.4") or _VERSION_BEFORE.search(before):
        return match[0]
    return IP if _is_address(match[0]) else match[0]


def _masked_ipv6(match: re.Match[str]) -> str:
    found = match[0]
    tail = ":" if found.endswith(":") and not found.endswith("::") else ""
    address = found.removesuffix(tail) if tail else found
    # `face::add` and `10::30` are words and times to people.
    telling = address.count(":") > 2 and any(char.isdigit() for char in address)
    return IP + tail if telling and _is_address(address) else found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
