"""Sample reviews: what a buyer writes, and what people read out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.sample.chance import draw, happens
from pipeline.sample.draft import Draft
from pipeline.sample.grammar import Speaker
from pipeline.sample.languages import draw_language
from pipeline.sample.style import roughen

if TYPE_CHECKING:
    from random import Random

    from pipeline.sample.words.shape import ReviewWords

# How honest the labels are.
MIXED_RATE = 0.14  # reviews with as much praise as blame ...
MIXED_READING = {"neutral": 0.7, "negative": 0.18, "positive": 0.12}  # ... and how they are read
MINOR_TURN_RATE = 0.12  # clear reviews with one remark to the contrary
SARCASM_RATE = 0.03
SENTIMENT_NOISE_RATE = 0.03
TOPIC_MISSED_RATE = 0.04
TOPIC_IMAGINED_RATE = 0.01

# How reviews look.
SENTIMENT_SHARES = {"positive": 0.47, "negative": 0.36, "neutral": 0.17}
TOPIC_COUNT_SHARES = {0: 0.13, 1: 0.40, 2: 0.30, 3: 0.12, 4: 0.05}
VERDICT_RATE = 0.6
LONG_RATE = 0.12
EMOJI_RATE = 0.2
TOPICS = ("quality", "delivery", "price", "service")
SENTIMENTS = ("negative", "neutral", "positive")
_EMOJI = ("⭐", "👍", "👎", "😍", "😤", "🙂", "👌🏼", "🎁")
_STARS = {
    "negative": {1: 0.6, 2: 0.32, 3: 0.06, 5: 0.02},
    "neutral": {2: 0.15, 3: 0.65, 4: 0.2},
    "positive": {3: 0.05, 4: 0.3, 5: 0.65},
}


@dataclass(frozen=True)
class _Plan:
    """What a review is going to say."""

    sentiment: str
    topics: list[str]
    mixed: bool


def write_review(rng: Random) -> Draft:
    """One review with the sentiment and the topics people read out of it."""
    language = draw_language(rng)
    speaker = Speaker(rng, language)
    product = speaker.pin("product")
    plan = _draw_plan(rng)
    remarks = _remarks(rng, speaker, language.reviews, plan=plan)
    text = speaker.join(_around(rng, speaker, language.reviews, remarks=remarks))
    values = {
        "product": product,
        "stars": draw(rng, _STARS[plan.sentiment]),
        "text": roughen(text, rng, emoji=_EMOJI, emoji_rate=EMOJI_RATE),
    }
    return Draft(values, _decide(rng, plan))


def _draw_plan(rng: Random) -> _Plan:
    count = draw(rng, TOPIC_COUNT_SHARES)
    if happens(rng, MIXED_RATE):
        topics = rng.sample(TOPICS, max(2, count // 2 * 2))
        return _Plan(draw(rng, MIXED_READING), topics, mixed=True)
    return _Plan(draw(rng, SENTIMENT_SHARES), rng.sample(TOPICS, count), mixed=False)


def _remarks(rng: Random, speaker: Speaker, words: ReviewWords, *, plan: _Plan) -> list[str]:
    if plan.mixed:
        return _both_sides(rng, speaker, words, topics=plan.topics)
    if plan.sentiment == "neutral":
        remarks = [speaker.say(words.shrug[topic]) for topic in plan.topics]
        return _with_verdict(rng, speaker, words, remarks=remarks, sentiment="neutral")
    positive = plan.sentiment == "positive"
    pools = words.praise if positive else words.blame
    remarks = [speaker.say(pools[topic]) for topic in plan.topics]
    if len(remarks) > 1 and happens(rng, MINOR_TURN_RATE):
        contrary = words.blame if positive else words.praise
        remarks[-1] = speaker.join(
            [speaker.say(words.turns), speaker.say(contrary[plan.topics[-1]])]
        )
    if not positive and remarks and happens(rng, SARCASM_RATE):
        return [speaker.say(words.sarcasm), *remarks]
    return _with_verdict(rng, speaker, words, remarks=remarks, sentiment=plan.sentiment)


def _both_sides(
    rng: Random, speaker: Speaker, words: ReviewWords, *, topics: list[str]
) -> list[str]:
    half = len(topics) // 2
    sides = [
        [speaker.say(words.praise[topic]) for topic in topics[:half]],
        [speaker.say(words.blame[topic]) for topic in topics[half:]],
    ]
    rng.shuffle(sides)
    return [*sides[0], speaker.join([speaker.say(words.turns), sides[1][0]]), *sides[1][1:]]


def _with_verdict(
    rng: Random, speaker: Speaker, words: ReviewWords, *, remarks: list[str], sentiment: str
) -> list[str]:
    if remarks and not happens(rng, VERDICT_RATE):
        return remarks
    verdict = speaker.say(words.verdicts[sentiment])
    return [verdict, *remarks] if happens(rng, 0.5) else [*remarks, verdict]


def _around(rng: Random, speaker: Speaker, words: ReviewWords, *, remarks: list[str]) -> list[str]:
    """The remarks with what else people tell, before, after, and in long reviews between."""
    count = rng.randint(5, 12) if happens(rng, LONG_RATE) else rng.choice((0, 0, 1, 1, 2))
    sentences = list(remarks)
    for filler in speaker.say_some(words.fillers, count):
        # A filler never parts "but" from what it contradicts: those are one sentence here.
        sentences.insert(rng.randint(0, len(sentences)), filler)
    return sentences


def _decide(rng: Random, plan: _Plan) -> dict[str, object]:
    """The labels, with the slips of people who read hundreds of reviews a day."""
    sentiment = plan.sentiment
    if happens(rng, SENTIMENT_NOISE_RATE):
        sentiment = rng.choice(SENTIMENTS)
    seen = [
        topic
        for topic in TOPICS
        if not happens(rng, TOPIC_MISSED_RATE if topic in plan.topics else 1 - TOPIC_IMAGINED_RATE)
    ]
    return {"sentiment": sentiment, "topics": seen}
