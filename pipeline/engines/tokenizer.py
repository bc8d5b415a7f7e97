"""The backbone's own tokenizer, through the `tokenizers` package (no transformers needed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from pipeline.window import Tokens, WindowTemplate
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

_MARKER = "a"
MASKS = ("[MASK]", "<mask>")


class BackboneTokenizer:
    """Encodes text to ids and character offsets; literal special tokens stay ordinary text.

    Raises:
        ArtifactError: the file is missing, is not a tokenizer, or puts no control tokens.
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
        if not self.single.n_control:
            raise ArtifactError(
                f"{path} puts no control token around a text, as [CLS] and [SEP] are, so that a "
                f"text without a known piece would be nothing at all; give it the post_processor "
                f"of its encoder, or choose another train.backbone"
            )
        self._control = self._control_ids()

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Literal control tokens of this vocabulary, sorted."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return tuple(sorted({token.content for token in added if token.special}))

    @property
    def pad_id(self) -> int:
        """Id to pad with; 0 where the vocabulary has no padding token."""
        return self._first_id("[PAD]", "<pad>") or 0

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are, control tokens included."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def unk_id(self) -> int | None:
        """Id of the unknown token; None where the vocabulary can spell everything."""
        named = getattr(self._tokenizer.model, "unk_token", None)
        return self._first_id(*([named] if named else []), "[UNK]", "<unk>")

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token; None where the vocabulary has none."""
        return self._first_id(*MASKS)

    def tokenize(self, texts: list[str]) -> list[Tokens]:
        """Ids and offsets of each text, without control tokens: no text can make one."""
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            Tokens(tuple(encoding.ids), tuple(encoding.offsets))
            if self._control.isdisjoint(encoding.ids)
            else self._without_control(text, encoding.ids, encoding.offsets)
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _first_id(self, *names: str) -> int | None:
        """Id of the first of these tokens that the vocabulary has."""
        ids = map(self._tokenizer.token_to_id, names)
        return next((int(token_id) for token_id in ids if token_id is not None), None)

    def _control_ids(self) -> frozenset[int]:
        """Ids that only the encoder may put: every special token but the unknown one."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        ids = {token_id for token_id, token in added if token.special}
        for template in (self.single, self.pair):
            ids.update(*template.gaps)
        masks = map(self._tokenizer.token_to_id, MASKS)
        ids.update(mask for mask in masks if mask is not None)
        return frozenset(ids - {self.unk_id})

    def _without_control(self, text: str, ids: list[int], offsets: list[tuple[int, int]]) -> Tokens:
        """Third line of defence: a control id in a text gives way to its characters, one by one.

        Some vocabularies list `<s>` among their pieces (XLM-R), and some normalizers make one of
        what no cleaner takes for it.
        """
        spelt: list[tuple[int, tuple[int, int]]] = []
        for token_id, (start, stop) in zip(ids, offsets, strict=True):
            if token_id not in self._control:
                spelt.append((token_id, (start, stop)))
                continue
            for index in range(start, stop):
                pieces = self._tokenizer.encode(text[index], add_special_tokens=False).ids
                spelt += [(p, (index, index + 1)) for p in pieces if p not in self._control]
        return Tokens(tuple(i for i, _ in spelt), tuple(span for _, span in spelt))

    def _template(self, *, pair: bool) -> WindowTemplate:
        """Which control ids stand before, between and after texts, as this tokenizer puts them."""
        encoding = self._tokenizer.encode(_MARKER, _MARKER if pair else None)
        gaps: list[list[int]] = [[]]
        gap_types: list[list[int]] = [[]]
        types: list[int] = []
        text = None
        for token_id, of_text, type_id in zip(
            encoding.ids, encoding.sequence_ids, encoding.type_ids, strict=True
        ):
            if of_text is None:
                gaps[-1].append(token_id)
                gap_types[-1].append(type_id)
            elif of_text != text:  # a marker may be several tokens
                text = of_text
                gaps.append([])
                gap_types.append([])
                types.append(type_id)
        return WindowTemplate(
            gaps=tuple(map(tuple, gaps)),
            types=tuple(types),
            gap_types=tuple(map(tuple, gap_types)),
        )
