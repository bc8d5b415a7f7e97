"""Texts as a linear model sees them: TF-IDF over characters and words, bounded in time and memory.

What is measured beside an encoder, and what checks labels, must cost little and suit any language:
character n-grams need no word borders, which many scripts do not write.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.model.labelled import Example

T = TypeVar("T")

MAX_ROWS = 50_000  # a linear model gains little from more, and takes minutes for them
MAX_CHARS = 5_000  # of a text: what is behind that hardly moves its frequencies
_MAX_FEATURES = 100_000
_RARE_FROM_ROWS = 1_000  # from so many texts on what stands in one alone is left out
# Words, and runs of marks: unlike scikit-learn's own pattern it finds something in every text.
_TOKEN = r"\w+|[^\w\s]+"  # noqa: S105 - a pattern, not a password


def joined_texts(examples: Sequence[Example]) -> list[str]:
    """Each record's text columns in one, cut at `MAX_CHARS`."""
    return ["\n".join(example.texts)[:MAX_CHARS] for example in examples]


def tfidf(n_texts: int, *, max_features: int = _MAX_FEATURES) -> FeatureUnion:
    """Character 2- to 5-grams within words, and single words and pairs, half of the features each.

    Sublinear term frequency, since a word that is there ten times says hardly more than once.
    """
    shared: dict[str, Any] = {
        "sublinear_tf": True,
        "min_df": 2 if n_texts >= _RARE_FROM_ROWS else 1,
        "max_features": max(1, max_features // 2),
        "dtype": np.float32,
    }
    return FeatureUnion(
        [
            ("chars", TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **shared)),
            ("words", TfidfVectorizer(token_pattern=_TOKEN, ngram_range=(1, 2), **shared)),
        ]
    )


def sampled(items: Sequence[T], *, limit: int, seed: int) -> list[T]:
    """All items, or a random `limit` of them, in their order."""
    if len(items) <= limit:
        return list(items)
    chooser = random.Random(seed)  # noqa: S311 - a sample, not a secret
    return [items[place] for place in sorted(chooser.sample(range(len(items)), limit))]
