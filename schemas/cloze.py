"""Heads that ask their question in words, for tasks with few labels."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from schemas.section import Section

MASK = "[MASK]"


class ClozeConfig(Section):
    """A sentence with a gap stands behind each text; labels are scored by what fits the gap.

    `prompt` holds `[MASK]` once, where the gap is, whatever the backbone calls its mask. `words`
    are those that stand for each label; a label's logit is the mean of what the backbone's
    masked-language head gives its words (Schick & Schuetze 2021, Gao et al. 2021). Each word must
    be one token of the backbone's vocabulary. All cloze heads of a task have the same prompt, since
    a text is read once.
    """

    prompt: str
    words: dict[str, tuple[str, ...]]

    @model_validator(mode="after")
    def _prompt_has_one_gap(self) -> Self:
        if (found := self.prompt.count(MASK)) != 1:
            raise ValueError(
                f"the prompt has {MASK} {found} times, expected once, where the word is asked for"
            )
        if self.prompt.strip() == MASK:
            raise ValueError(f"the prompt is {MASK} alone: put the words of a question around it")
        return self

    @model_validator(mode="after")
    def _words_tell_labels_apart(self) -> Self:
        seen: set[str] = set()
        for label, words in self.words.items():
            if not words:
                raise ValueError(f"label {label!r} has no words: name at least one")
            for word in words:
                if not word or word != word.strip():
                    raise ValueError(
                        f"word {word!r} of label {label!r} is blank or has white space around it"
                    )
                if word in seen:
                    raise ValueError(f"word {word!r} is named twice: remove it from one of both")
                seen.add(word)
        return self

    def check_labels(self, labels: tuple[str, ...]) -> None:
        """Makes sure that the words are those of `labels`.

        Raises:
            ValueError: a label has none, or there are words of another one.
        """
        if missing := [label for label in labels if label not in self.words]:
            raise ValueError(f"cloze.words has none for label {missing[0]!r}: add some")
        if others := [label for label in self.words if label not in labels]:
            raise ValueError(f"cloze.words names {others[0]!r}, which is not one of the labels")
