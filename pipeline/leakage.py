"""What makes held-out records look too easy, or no record certain: leaks and conflicting labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import regex

from pipeline.engines.near_duplicates import near_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pipeline.model.labelled import Example, Split, Target

    _BySplit = dict[Split, dict[str, list[Example]]]  # examples of each text of each split

# Marks (Thai and Hindi vowels, accents) stay with their letter, and go with anything else.
_NO_LETTER = regex.compile(r"(?:[^\p{L}\p{N}\p{M}]\p{M}*+)++")
_GUARDED: tuple[tuple[Split, tuple[Split, ...]], ...] = (
    ("valid", ("test",)),
    ("train", ("test", "valid")),
)
_EXAMPLES = 3


@dataclass(frozen=True)
class Leakage:
    """Records left out of a split because their text stands in one that is held out from it.

    `counts` and `examples` (ids of the record left out and of the one it is like) go by pair of
    splits, such as `train-test`.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for the log."""
        return ", ".join(
            f"{count} of {pair.replace('-', ' that are in ')}"
            + _in_brackets(f"{left} like {held}" for left, held in self.examples[pair])
            for pair, count in self.counts.items()
        )


@dataclass(frozen=True)
class Conflicts:
    """Texts that have more than one label, by head, and ids of some that have another each."""

    counts: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for the log."""
        return ", ".join(
            f"{count} of head {head!r}" + _in_brackets(self.examples[head])
            for head, count in self.counts.items()
        )


def without_leaks(
    examples: Sequence[Example], *, similarity: float | None
) -> tuple[list[Example], Leakage]:
    """The examples whose text is in no split held out from theirs, in order, and what that cost.

    Texts are compared without case, spaces and punctuation; those at least `similarity` alike
    count as equal (Jaccard index of character shingles), with None only equal ones. What is in
    test is left out of valid, what is in either of them is left out of train.
    """
    by_split: _BySplit = {"train": {}, "valid": {}, "test": {}}
    for example in examples:
        by_split[example.split].setdefault(_plain(example.texts), []).append(example)
    left_out: set[int] = set()
    ids: dict[str, list[tuple[str, str]]] = {
        f"{split}-{guard}": [] for split, guards in _GUARDED for guard in guards
    }
    for example, original in _leaks(by_split, similarity):
        left_out.add(id(example))
        ids[f"{example.split}-{original.split}"].append((example.record_id, original.record_id))
    return [example for example in examples if id(example) not in left_out], Leakage(
        counts={pair: len(found) for pair, found in ids.items()},
        examples={pair: tuple(found[:_EXAMPLES]) for pair, found in ids.items()},
    )


def _leaks(by_split: _BySplit, similarity: float | None) -> Iterator[tuple[Example, Example]]:
    """Examples to leave out, each with one that it is like; they are taken out of `by_split`."""
    for split, guards in _GUARDED:
        held = {text: group[0] for guard in guards for text, group in by_split[guard].items()}
        for text, twin in _matches(list(by_split[split]), held, similarity=similarity).items():
            for example in by_split[split].pop(text):
                yield example, held[twin]


def conflicting_labels(examples: Sequence[Example], heads: Iterable[str]) -> Conflicts:
    """Which texts are labelled in more than one way; they stay, for they are what people said."""
    torn = {head: _torn(examples, head) for head in heads}
    return Conflicts(
        counts={head: len(groups) for head, groups in torn.items()},
        examples={
            head: tuple(name for group in groups for name in group)[:_EXAMPLES]
            for head, groups in torn.items()
        },
    )


def _torn(examples: Sequence[Example], head: str) -> list[list[str]]:
    """Ids of the records of each text to which a head has more than one answer."""
    by_text: dict[str, dict[Target, str]] = {}
    for example in examples:
        if (target := example.targets[head]) is not None:
            by_text.setdefault(example.text_hash, {}).setdefault(target, example.record_id)
    return [list(answers.values()) for answers in by_text.values() if len(answers) > 1]


def _in_brackets(examples: Iterable[str]) -> str:
    listed = ", ".join(examples)
    return f" (for example {listed})" if listed else ""


def _matches(
    texts: Sequence[str], held: Mapping[str, object], *, similarity: float | None
) -> dict[str, str]:
    equal = {text: text for text in texts if text in held}
    if similarity is None:
        return equal
    others = [text for text in texts if text not in equal]
    return equal | near_matches(others, list(held), similarity=similarity)


def _plain(texts: Sequence[str]) -> str:
    """Letters, digits and their marks in lower case; a text without any stands for itself."""
    joined = " ".join(texts)
    return _NO_LETTER.sub("", joined.lower()) or joined
