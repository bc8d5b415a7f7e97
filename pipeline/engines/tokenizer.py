"""The backbone's own tokenizer, through the `tokenizers` package (no transformers needed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from pipeline.window import Tokens, WindowTemplate
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

_MARKER = "a"


class BackboneTokenizer:
    """Encodes text to ids and character offsets; literal special tokens stay ordinary text.

    Raises:
        ArtifactError: the file is missing or is not a tokenizer.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises a bare Exception
            raise ArtifactError(f"{path} is not a tokenizer.json: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # Second line of defence behind the cleaner: a literal [SEP] is split like any word.
        self._tokenizer.encode_special_tokens = True
        self.single = self._template(pair=False)
        self.pair = self._template(pair=True)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Literal control tokens of this vocabulary, sorted."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return tuple(sorted({token.content for token in added if token.special}))

    @property
    def pad_id(self) -> int:
        """Id to pad with; 0 where the vocabulary has no padding token."""
        for name in ("[PAD]", "<pad>"):
            if (token_id := self._tokenizer.token_to_id(name)) is not None:
                return int(token_id)
        return 0

    def tokenize(self, texts: list[str]) -> list[Tokens]:
        """Ids and offsets of each text, without control tokens."""
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [Tokens(tuple(encoding.ids), tuple(encoding.offsets)) for encoding in encodings]

    def _template(self, *, pair: bool) -> WindowTemplate:
        """Which control ids stand before, between and after texts, as this tokenizer puts them."""
        second = _MARKER if pair else None
        encoding = self._tokenizer.encode(_MARKER, second)
        gaps: list[list[int]] = [[]]
        types: list[int] = []
        for token_id, is_control, type_id in zip(
            encoding.ids, encoding.special_tokens_mask, encoding.type_ids, strict=True
        ):
            if is_control:
                gaps[-1].append(token_id)
            else:
                gaps.append([])
                types.append(type_id)
        return WindowTemplate(
            gaps=tuple(tuple(gap) for gap in gaps),
            types=tuple(types),
            gap_types=_gap_types(encoding.special_tokens_mask, encoding.type_ids),
        )


def _gap_types(mask: list[int], types: list[int]) -> tuple[tuple[int, ...], ...]:
    gaps: list[list[int]] = [[]]
    for is_control, type_id in zip(mask, types, strict=True):
        if is_control:
            gaps[-1].append(type_id)
        else:
            gaps.append([])
    return tuple(tuple(gap) for gap in gaps)
