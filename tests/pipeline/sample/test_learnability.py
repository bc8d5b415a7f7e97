from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("task", "suffix", "label", "text_columns"),
    [
        ("tickets", "csv", "queue", ("subject", "body")),
        ("reviews", "jsonl", "sentiment", ("text",)),
    ],
)
def test_a_simple_model_learns_the_labels_but_not_all_of_them(
    week: Path,
    sound_rows: Callable[[Path], list[dict[str, Any]]],
    task: str,
    suffix: str,
    label: str,
    text_columns: tuple[str, ...],
) -> None:
    history = sound_rows(week / f"labelled/{task}/history.{suffix}")
    incoming, decided = [], []
    for day in sorted((week / f"incoming/{task}").iterdir()):
        incoming += sound_rows(day / f"{task}.{suffix}")
        decided += sound_rows(week / f"outcomes/{task}/{day.name}.{suffix}")

    def text(row: dict[str, Any]) -> str:
        return " ".join(row[column] for column in text_columns)

    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2),
        LogisticRegression(C=10, max_iter=300),
    )
    model.fit([text(row) for row in history], [row[label] for row in history])
    guesses = model.predict([text(row) for row in incoming])
    hits = sum(guess == row[label] for guess, row in zip(guesses, decided, strict=True))
    accuracy = hits / len(decided)
    print(f"{task}.{label}: {accuracy:.3f} over {len(decided)} rows")
    assert 0.75 < accuracy < 0.97
