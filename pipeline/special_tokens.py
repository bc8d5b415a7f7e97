"""Literal special tokens in texts: a user who types `[SEP]` must not move the model's own."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from collections.abc import Iterable

# Each pass undoes one level of tokens nested in tokens, as in `<<s>s>`. Nobody writes more by
# accident; then all brackets go, which ends it in one pass whatever the text.
_MAX_PASSES = 4
_FULL_WIDTH_OFFSET = 0xFEE0
# SentencePiece writes a space as U+2581, and takes one that a user typed for a space.
_SPACE = r"[\s\u2581]*+"

# Of BERT, RoBERTa, XLM-R, ModernBERT and GPT-2: where the tokenizer in use is not at hand.
GENERIC_TOKENS = (
    "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>",
    "<|endoftext|>", "<|padding|>",
)  # fmt: skip


class SpecialTokens:
    """Finds and neutralises a tokenizer's special tokens in any of their variants.

    Variants of a token with brackets: letter case, spaces (SentencePiece's `▁` is one) inside of
    the brackets, full-width forms. A token that is a bare word is only found as it is written, for
    its other cases are ordinary words.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        distinct = sorted({token.strip() for token in tokens} - {""}, key=lambda t: (-len(t), t))
        bracketed = [token for token in distinct if not _is_word(token)]
        self._words = frozenset(token for token in distinct if _is_word(token))
        bare = [regex.escape(token) for token in distinct if _is_word(token)]
        self._bracketed = _alternatives(map(_variants, bracketed), flags=regex.IGNORECASE)
        self._bare = _alternatives(bare)
        self._brackets = _one_of(char for token in bracketed for char in _outside(token))

    def found_in(self, text: str) -> bool:
        """Whether a variant of a special token is in the text."""
        return any(
            pattern is not None and pattern.search(text) is not None
            for pattern in (self._bracketed, self._bare)
        )

    def neutralise(self, text: str) -> str:
        """The text with each token replaced by its word, `[SEP]` by ` sep `, or by a space.

        A second call changes nothing.
        """
        for _ in range(_MAX_PASSES):
            before = text
            text = self._pass(text)
            if text == before:
                return text
        if self._brackets is not None and self.found_in(text):
            text = str(self._brackets.sub(" ", text))
            text = self._pass(text)
        return text

    def _pass(self, text: str) -> str:
        if self._bare is not None:
            text = self._bare.sub(self._lowered, text)
        if self._bracketed is not None:
            text = self._bracketed.sub(_word_of, text)
        return text

    def _lowered(self, match: regex.Match[str]) -> str:
        word = str(match[0]).lower()
        return " " if any(token in word for token in self._words) else f" {word} "


def _is_word(token: str) -> bool:
    return not _outside(token)


def _outside(token: str) -> str:
    """The characters of a token that are neither letters, digits nor `_`: its brackets."""
    return "".join(char for char in token if not (char.isalnum() or char == "_"))


def _variants(token: str) -> str:
    """A pattern of a token's variants; `[SEP]` also matches `[ sep ]` and `［ＳＥＰ］`."""
    parts: list[str] = []
    previous = ""
    for char in token:
        if char.isspace():
            continue
        inside_word = _is_word(char) and previous and _is_word(previous)
        if previous and not inside_word:
            parts.append(_SPACE)
        parts.append(_forms(char))
        previous = char
    return "".join(parts)


def _forms(char: str) -> str:
    """A character class of a character and its full-width form."""
    narrow = unicodedata.normalize("NFKC", char)
    forms = {char, narrow} if len(narrow) == 1 else {char}
    forms |= {chr(ord(form) + _FULL_WIDTH_OFFSET) for form in forms if "!" <= form <= "~"}
    return "[" + "".join(regex.escape(form) for form in sorted(forms)) + "]"


def _alternatives(patterns: Iterable[str], *, flags: int = 0) -> regex.Pattern[str] | None:
    joined = "|".join(patterns)
    return regex.compile(joined, flags) if joined else None


def _one_of(chars: Iterable[str]) -> regex.Pattern[str] | None:
    classes = sorted({_forms(char) for char in chars if not char.isspace()})
    return regex.compile("|".join(classes)) if classes else None


def _word_of(match: regex.Match[str]) -> str:
    word = unicodedata.normalize("NFKC", str(match[0])).lower()
    kept = "".join(char for char in word if char.isalnum() or char == "_")
    return f" {kept} " if len(kept) > 1 else " "
