"""How the backbone goes on learning from texts without labels, before it is fine-tuned."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(gt=0, lt=1)]


# No subclass of `schemas.task.Section`: the task's file imports this one.
class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenizerTraining(_Part):
    """A tokenizer learned from the corpus: its kind, and how many pieces it may have.

    `wordpiece` lowers case as BERT's uncased one does; `bpe` works on bytes and knows every text;
    `unigram` is SentencePiece's.
    """

    model: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    vocab_size: Annotated[int, Field(ge=64)] = 8000


class ScratchConfig(_Part):
    """A BERT with random weights; the feed-forward layers are four times as wide as the others."""

    hidden_size: Annotated[int, Field(ge=8)] = 256
    layers: Annotated[int, Field(ge=1)] = 4
    heads: Annotated[int, Field(ge=1)] = 4

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of heads {self.heads}")
        return self


class PretrainConfig(_Part):
    """What `nightmill pretrain` does to `train.backbone`; nothing else reads this section.

    `corpus` is an address as in `data.incoming`; null is `data.incoming` of all dates. Texts of a
    `valid_fraction`, at most `max_valid_texts` of them, are measured on and never learned from.
    `max_tokens` null is that of `window`. `packed` joins short texts to sequences of that length.

    `mlm` hides `mask_fraction` of the pieces, of whole words with `whole_word` (80/10/10: Devlin et
    al. 2019). `simcse` pulls the two dropout views of a text together, at `temperature` (0.05: Gao
    et al. 2021). `next_sentence` adds BERT's question whether two parts follow each other.

    `new_tokens` is how many of the corpus's words become pieces of their own; such a word occurs
    at least `new_token_min_count` times. A missing masked-language head is fitted alone for at
    most `head_steps` steps. `micro_batch_size` bounds how many sequences go through at once; the
    step is the same. A rate of 1e-4 is that of Gururangan et al. 2020 for the task's own texts.
    """

    corpus: str | None = None
    objective: Literal["mlm", "simcse"] = "mlm"
    valid_fraction: Annotated[float, Field(gt=0, lt=0.5)] = 0.1
    max_valid_texts: Annotated[int, Field(ge=1)] = 1000
    max_tokens: Annotated[int, Field(ge=8)] | None = None
    packed: bool = True
    mask_fraction: Fraction = 0.15
    whole_word: bool = False
    next_sentence: bool = False
    temperature: Annotated[float, Field(gt=0)] = 0.05
    new_tokens: Annotated[int, Field(ge=0)] = 0
    new_token_min_count: Annotated[int, Field(ge=1)] = 5
    from_scratch: ScratchConfig | None = None
    train_tokenizer: TokenizerTraining | None = None
    head_steps: Annotated[int, Field(ge=1)] = 200
    epochs: Annotated[int, Field(ge=1)] = 3
    batch_size: Annotated[int, Field(ge=1)] = 32
    micro_batch_size: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    head_learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    warmup_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    checkpoint_steps: Annotated[int, Field(ge=1)] = 1000
    workers: Annotated[int, Field(ge=1)] = 1
    threads_per_worker: Annotated[int, Field(ge=1)] | None = None
    max_failures: Annotated[int, Field(ge=0)] = 2
    seed: int = Field(default=13, ge=0)

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.train_tokenizer is not None and self.from_scratch is None:
            raise ValueError(
                "train_tokenizer needs from_scratch: pretrained weights belong to their own pieces"
            )
        if self.new_tokens and self.from_scratch is not None:
            raise ValueError("new_tokens extends a pretrained vocabulary; not with from_scratch")
        if self.objective == "simcse":
            self._suits_simcse()
        return self

    def _suits_simcse(self) -> None:
        """Negatives are the other texts of a batch, so that it must stay in one piece."""
        unfit = {
            "workers over 1": self.workers > 1,
            "micro_batch_size": self.micro_batch_size is not None,
            "next_sentence": self.next_sentence,
            "new_tokens": self.new_tokens > 0,
            "from_scratch": self.from_scratch is not None,
            "batch_size 1": self.batch_size == 1,
        }
        if any(unfit.values()):
            names = ", ".join(name for name, is_set in unfit.items() if is_set)
            raise ValueError(f"objective simcse does not go with {names}")
