from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.model.facets import facets_of
from pipeline.window import Window
from schemas.task import DataConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.labelled import Example

DATA = DataConfig(incoming="i/*.csv", text_columns=("text",))
WITH_ID = DATA.model_copy(update={"id_column": "id"})


def records(make_example: Callable[..., Example], *rows: tuple[str, str, int]) -> list[Example]:
    """Examples by record id, language and tokens in two windows."""
    made = []
    for name, lang, tokens in rows:
        ids = [tuple(range(tokens // 2)), tuple(range(tokens - tokens // 2))]
        windows = tuple(Window(each, (0,) * len(each), 0, 1) for each in ids)
        made.append(replace(make_example(name), lang=lang, windows=windows))
    return made


def test_facets_by_language_length_and_file(make_example: Callable[..., Example]) -> None:
    rows = [(f"b/x:y.csv:{n}", "en" if n % 3 else "de", 4 + n) for n in range(8)]
    language, length, file = facets_of(records(make_example, *rows, ("a.csv:0", "en", 30)), DATA)
    assert (language.name, language.order) == ("language", ("en", "de"))
    assert language.values == ("de", "en", "en", "de", "en", "en", "de", "en", "en")
    assert length.order == (
        "4 to 5 tokens", "6 to 7 tokens", "8 to 9 tokens", "10 to 30 tokens"
    )  # fmt: skip
    assert length.values[0] == "4 to 5 tokens"
    assert length.values[-1] == "10 to 30 tokens"
    assert (file.name, file.order) == ("source file", ("b/x:y.csv", "a.csv"))


def test_what_is_the_same_everywhere_is_no_facet(make_example: Callable[..., Example]) -> None:
    same = records(make_example, *[(f"a.csv:{n}", "en", 6) for n in range(5)])
    assert facets_of(same, DATA) == []


def test_ids_of_a_column_name_no_file(make_example: Callable[..., Example]) -> None:
    rows = records(make_example, ("a:1", "en", 6), ("b:1", "en", 6))
    assert facets_of(rows, WITH_ID) == []
    assert [facet.name for facet in facets_of(rows, DATA)] == ["source file"]


def test_rare_values_share_a_line(make_example: Callable[..., Example]) -> None:
    names = [f"l{n:02}" for n in range(22)]
    rows = [(f"r{n}", name, 6) for n, name in enumerate(names + names[:20])]
    (language,) = facets_of(records(make_example, *rows), WITH_ID)
    assert language.order == (*names[:20], "others")
    assert language.values.count("others") == 2


def with_days(make_example: Callable[..., Example], *days: dt.date | None) -> list[Example]:
    rows = records(make_example, *[(f"r{n}", "en", 6) for n in range(len(days))])
    return [replace(row, day=day) for row, day in zip(rows, days, strict=True)]


def test_a_few_weeks_are_told_apart_by_week(make_example: Callable[..., Example]) -> None:
    new_year = [dt.date(2026, 12, 31), dt.date(2027, 1, 3), dt.date(2027, 1, 4), None]
    (time,) = facets_of(with_days(make_example, *new_year), WITH_ID)
    assert (time.name, time.order) == ("time", ("2026-W53", "2027-W01", "unknown"))
    assert time.values == ("2026-W53", "2026-W53", "2027-W01", "unknown")


def test_of_many_months_the_latest_are_told_apart(make_example: Callable[..., Example]) -> None:
    months = [dt.date(2025 + n // 12, n % 12 + 1, 15) for n in reversed(range(15))]
    (time,) = facets_of(with_days(make_example, *months), WITH_ID)
    assert time.order == (
        "earlier", *(f"2025-{n:02}" for n in range(4, 13)), "2026-01", "2026-02", "2026-03"
    )  # fmt: skip
    assert time.values == (*time.order[:0:-1], "earlier", "earlier", "earlier")


def test_one_period_or_none_is_no_facet(make_example: Callable[..., Example]) -> None:
    assert facets_of(with_days(make_example, None, None), WITH_ID) == []
    assert facets_of(with_days(make_example, *[dt.date(2026, 1, 1)] * 2), WITH_ID) == []
