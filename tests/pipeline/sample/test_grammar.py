from __future__ import annotations

import re
from dataclasses import fields
from random import Random
from typing import TYPE_CHECKING

import pytest

from pipeline.sample.grammar import Speaker
from pipeline.sample.languages import LANGUAGE_SHARES, LANGUAGES
from pipeline.sample.scenarios import AMBIGUOUS, CLEAR, PRIORITIES, QUEUE_SHARES
from pipeline.sample.tickets import THREAD_WORDS, write_ticket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.sample.words.shape import Language, ReviewWords, TicketWords

EVERY_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES.values(), ids=list(LANGUAGES))
SCENARIOS = [*CLEAR, *AMBIGUOUS]


def _templates(words: TicketWords | ReviewWords) -> Iterator[str]:
    for field in fields(words):
        value = getattr(words, field.name)
        for pool in [value] if isinstance(value, tuple) else value.values():
            assert isinstance(pool, tuple)
            assert pool
            yield from pool


@EVERY_LANGUAGE
def test_every_template_expands_to_text_without_marks(language: Language) -> None:
    speaker = Speaker(Random(5), language)
    for words in (language.tickets, language.reviews):
        for template in _templates(words):
            for _ in range(5):
                text = speaker.expand(template)
                assert text.strip()
                assert not re.search(r"[\[\]{}|]", text), template


@EVERY_LANGUAGE
def test_a_language_has_words_for_all_labels(language: Language) -> None:
    words = language.tickets
    assert set(words.complaints) <= {scenario.name for scenario in SCENARIOS}
    assert set(words.asks) == set(words.subjects) == set(QUEUE_SHARES)
    assert set(words.urgency) == set(PRIORITIES)
    for queue in QUEUE_SHARES:
        assert any(each.name in words.complaints for each in CLEAR if queue in each.queues)
    assert any(each.name in words.complaints for each in AMBIGUOUS)


@pytest.mark.parametrize("code", ["en", "de", "es", "fr", "pt"])
def test_large_languages_know_every_scenario(code: str) -> None:
    assert set(LANGUAGES[code].tickets.complaints) == {scenario.name for scenario in SCENARIOS}


def test_language_shares_are_of_known_languages_and_sum_to_one() -> None:
    assert set(LANGUAGE_SHARES) == set(LANGUAGES)
    assert sum(LANGUAGE_SHARES.values()) == pytest.approx(1.0)


def test_made_up_people_cannot_be_reached() -> None:
    speaker = Speaker(Random(3), LANGUAGES["de"])
    for _ in range(50):
        assert re.fullmatch(r"[A-Z][a-z]*[0-9]{1,2}@example\.com", speaker.expand("{email}"))
        assert re.fullmatch(r"\+1 555 01[0-9]{2}", speaker.expand("{phone}"))


def test_a_pinned_slot_keeps_its_value() -> None:
    speaker = Speaker(Random(3), LANGUAGES["en"])
    order = speaker.pin("order")
    assert [speaker.expand("{order}") for _ in range(5)] == [order] * 5


def test_a_thread_is_long_and_its_complaint_is_near_the_end() -> None:
    bodies = [write_ticket(Random(seed)).values["body"] for seed in range(2000)]
    threads = [body for body in bodies if re.search(r"(?m)^> > ", body)]
    assert 10 < len(threads) < 80
    for body in threads:
        assert len(body.split()) > THREAD_WORDS
        last_mail = re.split(r"\n\n", body)[-1]
        assert len(last_mail.split()) < 120
