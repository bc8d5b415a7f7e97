"""A tokenizer learned from the corpus, for a model without weights of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pipeline.model.pretrain.corpus import Text
    from schemas.pretrain import TokenizerTraining

# In BERT's order, so that padding has the id 0.
CONTROL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNKNOWN = CONTROL[1]


def train_tokenizer(texts: Sequence[Text], config: TokenizerTraining, path: Path) -> int:
    """Writes a `tokenizer.json` with control tokens and templates as BERT's; answers its size."""
    tokenizer = _KINDS[config.model](texts, config.vocab_size)
    tokenizer.add_special_tokens(list(CONTROL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.save(str(path))
    return int(tokenizer.get_vocab_size())


def _parts(texts: Sequence[Text]) -> Iterator[str]:
    for text in texts:
        yield from text.parts


def _wordpiece(texts: Sequence[Text], size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    # The trainer numbers inner letters in the random order of a hash table, and ties between pieces
    # by their numbers: given their place in advance, the same corpus gives the same vocabulary.
    plain = (tokenizer.normalizer.normalize_str(part) for part in _parts(texts))
    letters = sorted({char for part in plain for char in part if not char.isspace()})
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=[*CONTROL, *(f"##{char}" for char in letters)],
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(_parts(texts), trainer)
    # A tokenizer of its own: in the trained one inner letters count as control tokens.
    learned = Tokenizer(models.WordPiece(tokenizer.get_vocab(), unk_token=_UNKNOWN))
    learned.normalizer, learned.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    learned.decoder = tokenizer.decoder
    return learned


def _bpe(texts: Sequence[Text], size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(CONTROL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_parts(texts), trainer)
    return tokenizer


def _unigram(texts: Sequence[Text], size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=list(CONTROL), unk_token=_UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(_parts(texts), trainer)
    return tokenizer


_KINDS: dict[str, Callable[[Sequence[Text], int], Tokenizer]] = {
    "wordpiece": _wordpiece,
    "bpe": _bpe,
    "unigram": _unigram,
}
