"""The prompt that stands behind each text of a task with cloze heads, and the words for its gap.

The mask token and whatever the prompt consists of are control tokens of a window: no text makes
them, they take their share of its tokens, and no span of a text counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pipeline.flow import Tokenizer
from schemas.cloze import MASK
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.window import Tokens, WindowTemplate
    from schemas.cloze import ClozeConfig
    from schemas.head import HeadConfig


class ClozeTokenizer(Tokenizer, Protocol):
    """A tokenizer whose vocabulary may have a mask token."""

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token; None where there is none."""

    @property
    def unk_id(self) -> int | None:
        """Id of the unknown token; None where the vocabulary can spell everything."""


class PromptedTokenizer:
    """A tokenizer with a prompt at the end of its windows, before what ends them."""

    def __init__(self, tokenizer: Tokenizer, ids: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        self.single = with_prompt(tokenizer.single, ids)
        self.pair = with_prompt(tokenizer.pair, ids)

    def tokenize(self, texts: list[str]) -> list[Tokens]:
        """Ids and offsets of each text, without control tokens."""
        return self._tokenizer.tokenize(texts)


@dataclass(frozen=True, slots=True)
class _Gap:
    """What stands before and behind the gap, as text and as ids."""

    left: str
    left_ids: tuple[int, ...]
    right_ids: tuple[int, ...]


def prompted(tokenizer: ClozeTokenizer, prompt: str | None) -> Tokenizer:
    """The tokenizer with `prompt` in its windows; as it is where there is none.

    Raises:
        ConfigError: see `prompt_ids`.
    """
    if prompt is None:
        return tokenizer
    return PromptedTokenizer(tokenizer, prompt_ids(prompt, tokenizer))


def prompt_ids(prompt: str, tokenizer: ClozeTokenizer) -> tuple[int, ...]:
    """The prompt's ids, its gap being the vocabulary's mask token.

    Raises:
        ConfigError: the vocabulary has no mask token, or cannot spell the prompt.
    """
    mask_id = mask_of(tokenizer)
    gap = _gap(prompt, tokenizer)
    ids = (*gap.left_ids, mask_id, *gap.right_ids)
    if tokenizer.unk_id in ids:
        raise ConfigError(
            f"cloze.prompt {prompt!r}: the backbone's vocabulary cannot spell it; "
            f"use other words, or another train.backbone"
        )
    return ids


def mask_of(tokenizer: ClozeTokenizer) -> int:
    """Id of the mask token.

    Raises:
        ConfigError: the vocabulary has none.
    """
    if (mask_id := tokenizer.mask_id) is None:
        raise ConfigError(
            "cloze: the backbone's vocabulary has no mask token, so nothing can be asked for; "
            "choose another train.backbone, or leave heads.*.cloze out"
        )
    return mask_id


def with_prompt(template: WindowTemplate, ids: tuple[int, ...]) -> WindowTemplate:
    """The template with `ids` behind the last text, in its segment."""
    *gaps, end = template.gaps
    *gap_types, end_types = template.gap_types
    types = (template.types[-1],) * len(ids)
    return replace(
        template, gaps=(*gaps, (*ids, *end)), gap_types=(*gap_types, (*types, *end_types))
    )


def word_ids(
    heads: Mapping[str, HeadConfig], tokenizer: ClozeTokenizer
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """For each cloze head the ids of each label's words, in the order of its labels.

    A word's id is the one that it has in the gap: in some vocabularies it is another one behind a
    space.

    Raises:
        ConfigError: a word is not one token, is unknown, or is the same token as another word.
    """
    return {
        name: _head_words(name, head.labels, head.cloze, tokenizer)
        for name, head in heads.items()
        if head.cloze is not None
    }


def _head_words(
    name: str, labels: tuple[str, ...], cloze: ClozeConfig, tokenizer: ClozeTokenizer
) -> tuple[tuple[int, ...], ...]:
    gap = _gap(cloze.prompt, tokenizer)
    words = [(label, word) for label in labels for word in cloze.words[label]]
    tokens = tokenizer.tokenize([gap.left + word for _, word in words])
    found: dict[int, str] = {}
    ids: dict[str, list[int]] = {}
    for (label, word), whole in zip(words, tokens, strict=True):
        token_id = _only_id(name, word, whole, gap, unk_id=tokenizer.unk_id)
        if token_id in found:
            raise ConfigError(
                f"heads.{name}.cloze.words: {word!r} and {found[token_id]!r} are the same token of "
                f"the backbone's vocabulary; remove one of both"
            )
        found[token_id] = word
        ids.setdefault(label, []).append(token_id)
    return tuple(tuple(ids[label]) for label in labels)


def _only_id(name: str, word: str, whole: Tokens, gap: _Gap, *, unk_id: int | None) -> int:
    """The id of a word from the ids of what stands before the gap with the word behind it."""
    start = len(gap.left_ids)
    ids = whole.ids[start:] if whole.ids[:start] == gap.left_ids else whole.ids
    if len(ids) == 1 and ids[0] != unk_id:
        return ids[0]
    text, spans = gap.left + word, whole.offsets[len(whole.ids) - len(ids) :]
    pieces = [text[first:last].strip() for first, last in spans]
    what = "unknown to" if unk_id in ids else f"cut into {pieces} by"
    raise ConfigError(
        f"heads.{name}.cloze.words: {word!r} is {what} the backbone's vocabulary, but must be one "
        f"token of it; choose a more common word"
    )


def _gap(prompt: str, tokenizer: Tokenizer) -> _Gap:
    """The prompt in parts, a space between it and the text before it.

    The space before the gap is the word's: with it go the tokens of a byte-level vocabulary, and
    the mask tokens of such vocabularies take it in as well.
    """
    left, _, right = prompt.partition(MASK)
    left = f" {left}" if left.strip() else " "
    before, behind = tokenizer.tokenize([left.rstrip(), right])
    return _Gap(left, before.ids, behind.ids)
