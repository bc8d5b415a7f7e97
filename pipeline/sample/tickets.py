"""Sample tickets: what a customer writes, and how the support desk sorts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.sample.chance import draw, happens
from pipeline.sample.draft import Draft
from pipeline.sample.grammar import Speaker
from pipeline.sample.languages import draw_language
from pipeline.sample.scenarios import AMBIGUOUS, CLEAR, PRIORITIES, QUEUE_SHARES, Scenario
from pipeline.sample.style import roughen

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pipeline.sample.words.shape import Language, TicketWords

# How honest the labels are.
AMBIGUOUS_RATE = 0.20  # tickets that could lie in several queues
HINT_RATE = 0.55  # ambiguous tickets that ask for something ...
HINT_TRUST = 0.85  # ... and how often the desk follows what they ask for
QUEUE_NOISE_RATE = 0.03  # tickets sorted into a wrong queue
PRIORITY_NOISE_RATE = 0.12
URGENCY_TOLD_RATE = {"low": 0.85, "normal": 0.25, "high": 0.9}

# How tickets look.
CHANNEL_SHARES = {"email": 0.45, "web": 0.25, "chat": 0.2, "app": 0.1}
LENGTH_SHARES = {"note": 0.36, "message": 0.49, "story": 0.13, "thread": 0.02}
SUBJECT_TELLS_RATE = 0.45
EMPTY_SUBJECT_RATE = 0.08
ASK_RATE = 0.45
EMOJI_RATE = 0.07
THREAD_WORDS = 420
_EMOJI = ("🙏", "😡", "😕", "🤷‍♀️", "👍🏽", "😀", "👨‍👩‍👧", "❗")


def write_ticket(rng: Random) -> Draft:
    """One ticket with the queue and the priority people gave it."""
    language = draw_language(rng)
    speaker = Speaker(rng, language)
    speaker.pin("order")
    scenario = _draw_scenario(rng, language.tickets)
    queue = draw(rng, scenario.queues)
    priority = rng.choices(PRIORITIES, weights=scenario.priorities)[0]
    clear = len(scenario.queues) == 1
    asks = _draw_asks(rng, language.tickets, queue=queue, scenario=scenario)
    core = [speaker.say(language.tickets.complaints[scenario.name]), *map(speaker.expand, asks)]
    if happens(rng, URGENCY_TOLD_RATE[priority]):
        core.append(speaker.say(language.tickets.urgency[priority]))
    body = _write_body(rng, speaker, language=language, core=core)
    values = {
        "channel": draw(rng, CHANNEL_SHARES),
        "subject": _write_subject(rng, speaker, language.tickets, queue=queue if clear else None),
        "body": roughen(body, rng, emoji=_EMOJI, emoji_rate=EMOJI_RATE),
    }
    return Draft(values, _decide(rng, queue=queue, priority=priority))


def _draw_scenario(rng: Random, words: TicketWords) -> Scenario:
    """A scenario that the language has words for."""
    if happens(rng, AMBIGUOUS_RATE):
        return rng.choice([each for each in AMBIGUOUS if each.name in words.complaints])
    queue = draw(rng, QUEUE_SHARES)
    known = [each for each in CLEAR if queue in each.queues and each.name in words.complaints]
    return rng.choice(known)


def _draw_asks(
    rng: Random, words: TicketWords, *, queue: str, scenario: Scenario
) -> tuple[str, ...]:
    """What the customer asks for, if anything; an ask that the desk does not follow misleads."""
    if len(scenario.queues) == 1:
        return (rng.choice(words.asks[queue]),) if happens(rng, ASK_RATE) else ()
    if not happens(rng, HINT_RATE):
        return ()
    asked = queue if happens(rng, HINT_TRUST) else draw(rng, scenario.queues)
    return (rng.choice(words.asks[asked]),)


def _decide(rng: Random, *, queue: str, priority: str) -> dict[str, str]:
    """The labels, with the slips of people who sort hundreds of tickets a day."""
    if happens(rng, QUEUE_NOISE_RATE):
        queue = rng.choice(list(QUEUE_SHARES))
    if happens(rng, PRIORITY_NOISE_RATE):
        priority = rng.choice([each for each in PRIORITIES if each != priority])
    return {"queue": queue, "priority": priority}


def _write_subject(rng: Random, speaker: Speaker, words: TicketWords, *, queue: str | None) -> str:
    if happens(rng, EMPTY_SUBJECT_RATE):
        return ""
    if queue and happens(rng, SUBJECT_TELLS_RATE):
        return speaker.say(words.subjects[queue])
    return speaker.say(words.plain_subjects)


def _write_body(rng: Random, speaker: Speaker, *, language: Language, core: list[str]) -> str:
    length = draw(rng, LENGTH_SHARES)
    if length == "thread" and not language.spaced:
        length = "story"  # a thread is measured in words
    writers: dict[str, Callable[[], str]] = {
        "note": lambda: speaker.join(core),
        "message": lambda: _message(rng, speaker, language.tickets, core=core),
        "story": lambda: _story(rng, speaker, language.tickets, core=core),
        "thread": lambda: _thread(rng, speaker, language.tickets, core=core),
    }
    return writers[length]()


def _message(rng: Random, speaker: Speaker, words: TicketWords, *, core: list[str]) -> str:
    sentences = [
        *speaker.say_some(words.intros, rng.randint(0, 1)),
        core[0],
        *speaker.say_some(words.fillers, rng.choice((0, 0, 1, 2))),
        *core[1:],
    ]
    lines = [speaker.join(sentences)]
    if happens(rng, 0.7):
        lines.insert(0, speaker.say(words.greetings))
    if happens(rng, 0.6):
        lines.append(speaker.say(words.closings))
    return rng.choice(("\n", "\n\n", " ")).join(lines)


def _story(rng: Random, speaker: Speaker, words: TicketWords, *, core: list[str]) -> str:
    """Eight to twenty sentences, the complaint anywhere among them."""
    around = [
        *speaker.say_some(words.intros, 3),
        *speaker.say_some(words.fillers, rng.randint(6, 15)),
    ]
    at = rng.randint(0, len(around))
    sentences = [*around[:at], core[0], *around[at:], *core[1:]]
    half = len(sentences) // 2
    paragraphs = [speaker.join(sentences[:half]), speaker.join(sentences[half:])]
    return "\n\n".join([speaker.say(words.greetings), *paragraphs, speaker.say(words.closings)])


def _thread(rng: Random, speaker: Speaker, words: TicketWords, *, core: list[str]) -> str:
    """A forwarded thread, newest mail first: the complaint that started it is near the end."""
    blocks = [f"{speaker.say(words.greetings)}\n\n{speaker.say(words.forwards)}"]
    depth, written = 0, 0
    while written < THREAD_WORDS:
        depth = min(depth + 1, 4)
        mail = speaker.say_some(words.boilerplate, 9)
        rng.shuffle(mail)
        blocks.append(_quoted(speaker.say(words.quote_lines), mail, depth=depth))
        written += sum(len(sentence.split()) for sentence in mail)
    first_mail = [speaker.say(words.greetings), *core, speaker.say(words.closings)]
    blocks.append(_quoted(speaker.say(words.quote_lines), first_mail, depth=depth + 1))
    return "\n\n".join(blocks)


def _quoted(header: str, mail: list[str], *, depth: int) -> str:
    """A mail as its answer quotes it: the header one level up, then marked lines."""
    outer, inner = "> " * (depth - 1), "> " * depth
    lines = "\n".join(mail).split("\n")
    return "\n".join([f"{outer}{header}", *(f"{inner}{line}" for line in lines)])
