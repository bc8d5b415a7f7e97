from __future__ import annotations

import re

import pytest

from pipeline.engines.histogram import histogram
from pipeline.length_histogram import LengthHistogram


def drawn(*lengths, title="Characters"):
    found = LengthHistogram()
    for length in lengths:
        found.add(length)
    return histogram(found.distribution(), title=title)


def bars(figure):
    return re.findall(r'<rect x="([0-9.]+)".*?height="([0-9.]+)"><title>(.*?)</title>', figure)


def test_a_bar_says_from_where_to_where_and_how_many():
    found = bars(drawn(1, 4, 5, 6, 100, 100, 120))
    assert [title for *_, title in found] == ["1: 1", "4 to 5: 2", "6 to 7: 1", "96 to 127: 3"]
    places = [float(x) for x, *_ in found]
    assert places == sorted(places)
    heights = [float(height) for _, height, _ in found]
    assert heights[3] == max(heights) == pytest.approx(3 * heights[0], abs=0.5)


def test_median_and_p95_are_marked_within_the_drawing():
    figure = drawn(*range(1, 101))
    marks = dict(re.findall(r'<text class="mark" x="([0-9.]+)".*?>(\w+ [0-9]+)</text>', figure))
    assert sorted(marks.values()) == ["median 50", "p95 94"]  # of 64 to 127 each second length
    assert all(0 < float(x) < 520 for x in marks)


def test_the_names_of_equal_marks_stand_on_two_lines():
    figure = drawn(*[1] * 99, 10)
    places = re.findall(r'<text class="mark" x="[0-9.]+" y="([0-9.]+)"', figure)
    assert abs(float(places[0]) - float(places[1])) > 11  # the height of a line


def test_one_length_alone_is_one_bar():
    assert [title for *_, title in bars(drawn(7, 7))] == ["6 to 7: 2"]
    assert [title for *_, title in bars(drawn(0))] == ["0: 1"]


def test_the_axis_ends_at_a_round_number():
    axis = re.findall(r'text-anchor="end">([0-9,]+)</text>', drawn(*[5] * 1618))
    assert axis == ["0", "1,000", "2,000"]


def test_a_title_is_escaped():
    assert "<figcaption>&lt;b&gt; " in drawn(1, title="<b>")
