"""A prompt takes its share of each window and nothing else; words are tokens as they are in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from pipeline.bundle import text_flow
from pipeline.clean import Cleaner
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.prompt import prompt_ids, prompted, with_prompt, word_ids
from pipeline.rows import RawRow
from pipeline.window import Tokens, WindowTemplate, make_windows
from schemas.cloze import ClozeConfig
from schemas.errors import ConfigError
from schemas.task import CleanConfig, HeadConfig, WindowConfig

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

CLS, SEP, GAP = 101, 102, 103
PROMPT = (7, GAP, 8)
SINGLE = WindowTemplate(gaps=((CLS,), (SEP,)), types=(0,), gap_types=((0,), (0,)))
PAIR = WindowTemplate(gaps=((CLS,), (SEP,), (SEP,)), types=(0, 1), gap_types=((0,), (0,), (1,)))
PIECES = st.sampled_from(["word", "a", "", " ", "👨\u200d👩\u200d👧", "e\u0301", "你", "🇩🇪"])


def by_character(text: str, *, first_id: int = 1000) -> Tokens:
    places = [(index, index + 1) for index, char in enumerate(text) if not char.isspace()]
    return Tokens(tuple(range(first_id, first_id + len(places))), tuple(places))


@given(
    text=st.lists(PIECES, max_size=60).map("".join),
    sizes=st.tuples(st.integers(10, 40), st.integers(0, 20)),
    head=st.none() | st.text("abc", max_size=30),
)
def test_windows_are_those_of_a_budget_without_the_prompts_tokens(
    text: str, sizes: tuple[int, int], head: str | None
) -> None:
    """Same spans, same texts; the prompt once in each, between its text and what ends it."""
    max_tokens, stride = sizes[0], min(sizes[1], sizes[0] // 4)
    template = SINGLE if head is None else PAIR
    parts = [*([] if head is None else [by_character(head, first_id=500)]), by_character(text)]
    texts = [*([] if head is None else [head]), text]
    plain = make_windows(
        parts, texts, template=template,
        config=WindowConfig(max_tokens=max_tokens, stride_tokens=stride),
    )  # fmt: skip
    made = make_windows(
        parts, texts, template=with_prompt(template, PROMPT),
        config=WindowConfig(max_tokens=max_tokens + len(PROMPT), stride_tokens=stride),
    )  # fmt: skip
    assert made.truncated == plain.truncated
    assert [(each.start_char, each.end_char) for each in made.windows] == [
        (each.start_char, each.end_char) for each in plain.windows
    ]
    for ours, theirs in zip(made.windows, plain.windows, strict=True):
        assert ours.input_ids == (*theirs.input_ids[:-1], *PROMPT, SEP)
        segment = theirs.type_ids[-1]
        assert ours.type_ids == (*theirs.type_ids[:-1], *[segment] * len(PROMPT), segment)
        assert ours.n_tokens <= max_tokens + len(PROMPT)


def test_a_prompt_that_fills_the_window_is_refused() -> None:
    template = with_prompt(SINGLE, (7,) * 5 + (GAP,))
    with pytest.raises(ConfigError, match=r"window.max_tokens 8 leaves no room for text"):
        make_windows(
            [by_character("ab")], ["ab"], template=template,
            config=WindowConfig(max_tokens=8, stride_tokens=2),
        )  # fmt: skip


def head(prompt: str, **words: Any) -> HeadConfig:
    cloze = ClozeConfig.model_validate({"prompt": prompt, "words": words})
    return HeadConfig(column="c", labels=tuple(words), cloze=cloze)


@pytest.fixture(scope="module")
def bert(tiny_tokenizer_path: Path) -> BackboneTokenizer:
    return BackboneTokenizer(tiny_tokenizer_path)


def ids_of(tokenizer: BackboneTokenizer, *pieces: str) -> tuple[int, ...]:
    found = tuple(tokenizer._tokenizer.token_to_id(piece) for piece in pieces)
    assert None not in found
    return found


def test_a_berts_prompt_and_words(bert: BackboneTokenizer) -> None:
    prompt = "It was [MASK]."
    assert prompt_ids(prompt, bert) == ids_of(bert, "it", "was", "[MASK]", ".")
    found = word_ids({"mood": head(prompt, pos=["Good", "great"], neg=["bad"])}, bert)
    assert found == {"mood": (ids_of(bert, "good", "great"), ids_of(bert, "bad"))}
    assert prompt_ids("[MASK] service", bert) == ids_of(bert, "[MASK]", "service")


def byte_level(path: Path) -> BackboneTokenizer:
    """RoBERTa's way: a word behind a space is another token, and the mask takes the space in."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = ["Ġit", "Ġwas", "Ġgood", "Ġbad", "good"]
    merges, pieces = [], []
    for word in words:
        for stop in range(2, len(word) + 1):
            if (word[: stop - 1], word[stop - 1]) not in merges:
                merges.append((word[: stop - 1], word[stop - 1]))
                pieces.append(word[:stop])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {p: n for n, p in enumerate(dict.fromkeys([*special, *alphabet, *pieces]))}
    tokenizer = FastTokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name == "<mask>", normalized=False) for name in special]
    )
    return saved(tokenizer, path)


def sentence_piece(path: Path) -> BackboneTokenizer:
    """XLM-R's way: a space is a sign of its own at a word's beginning."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = ["▁it", "▁was", "▁good", "▁bad", "▁"]
    pieces = [(name, 0.0) for name in special] + [(word, -2.0) for word in words]
    pieces += [(sign, -8.0) for sign in "abcdefghijklmnopqrstuvwxyz.,!"]
    tokenizer = FastTokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(
        [AddedToken(name, lstrip=name == "<mask>", normalized=False) for name in special]
    )
    return saved(tokenizer, path)


def saved(tokenizer: FastTokenizer, path: Path) -> BackboneTokenizer:
    ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ids
    )
    tokenizer.save(str(path / "tokenizer.json"))
    return BackboneTokenizer(path / "tokenizer.json")


@pytest.mark.parametrize(
    ("make", "pieces", "words"),
    [
        (byte_level, ("Ġit", "Ġwas", "<mask>", "."), ("Ġgood", "Ġbad")),
        (sentence_piece, ("▁it", "▁was", "<mask>", "▁", "."), ("▁good", "▁bad")),
    ],
)
def test_the_mask_and_the_words_are_the_vocabularys_own(
    make: Any, pieces: tuple[str, ...], words: tuple[str, str], tmp_path: Path
) -> None:
    """The ids are those that the whole tokenizer gives to text and prompt in one string."""
    tokenizer, prompt = make(tmp_path), "it was [MASK]."
    found = prompt_ids(prompt, tokenizer)
    assert found == ids_of(tokenizer, *pieces)
    reference = FastTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "it was bad"
    whole = reference.encode(f"{text} {prompt.replace('[MASK]', '<mask>')}").ids
    (alone,) = tokenizer.tokenize([text])
    reader = prompted(tokenizer, prompt)
    (window,) = make_windows([alone], [text], template=reader.single, config=WindowConfig()).windows
    assert list(window.input_ids) == whole
    by_head = word_ids({"h": head(prompt, pos=["good"], neg=["bad"])}, tokenizer)
    assert by_head == {"h": (ids_of(tokenizer, words[0]), ids_of(tokenizer, words[1]))}


def test_a_word_at_a_quotation_mark_is_the_one_without_a_space(tmp_path: Path) -> None:
    tokenizer = byte_level(tmp_path)
    quoted = head('it was "[MASK]"', pos=["good"], neg=["x"])
    assert word_ids({"h": quoted}, tokenizer)["h"][0] == ids_of(tokenizer, "good")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["good", "awful"],
            r"heads\.mood\.cloze\.words: 'awful' is cut into \['a', 'w', 'f', 'u', ",
        ),
        (["very good"], r"'very good' is cut into \['v', 'e', 'r', 'y', 'good'\] by the backbone"),
        (["ж"], r"'ж' is unknown to the backbone's vocabulary, but must be one token"),
        (["good", "GOOD"], r"'GOOD' and 'good' are the same token"),
        (["bad."], r"'bad.' is cut into \['bad', '.'\] by"),
    ],
)
def test_a_word_that_is_not_one_token_is_refused(
    words: list[str], message: str, bert: BackboneTokenizer
) -> None:
    with pytest.raises(ConfigError, match=message):
        word_ids({"mood": head("it was [MASK]", pos=words, neg=["bad"])}, bert)


@dataclass
class NoMask:
    """A vocabulary that has neither mask nor unknown token."""

    single: WindowTemplate = SINGLE
    pair: WindowTemplate = PAIR
    mask_id: int | None = None
    unk_id: int | None = None

    def tokenize(self, texts: list[str]) -> list[Tokens]:
        return [by_character(text) for text in texts]


def test_a_vocabulary_without_a_mask_or_without_the_prompts_letters_is_refused(
    bert: BackboneTokenizer,
) -> None:
    with pytest.raises(ConfigError, match="vocabulary has no mask token"):
        prompted(NoMask(), "it was [MASK]")
    with pytest.raises(ConfigError, match="the backbone's vocabulary cannot spell it"):
        prompted(bert, "это [MASK]")
    assert prompted(bert, None) is bert


def test_failure_35_a_text_with_a_mask_of_its_own_has_but_the_prompts(
    tiny_task: TaskConfig, bert: BackboneTokenizer
) -> None:
    """Neither past the cleaner nor past the tokenizer, which is asked alone as well."""
    cloze = head("it was [MASK].", billing=["good"], technical=["bad"], shipping=["great"])
    task = tiny_task.model_copy(update={"heads": tiny_task.heads | {"queue": cloze}})
    text = "the [MASK] app ［MASK］ is [ mask ] slow " * 8
    row = RawRow("f", 0, {"ticket_id": "t", "subject": "[MASK]", "body": text}, b"")
    flow = text_flow(task, bert)
    (prepared,) = flow.prepare([row])
    assert isinstance(prepared, Prepared)
    made = flow.windows(prepared).windows
    assert len(made) > 2
    for window in made:
        assert window.n_tokens <= task.window.max_tokens
        assert window.input_ids.count(bert.mask_id or -1) == 1
        assert window.input_ids[-5:] == ids_of(bert, "it", "was", "[MASK]", ".", "[SEP]")
        assert window.type_ids[-5:] == (1,) * 5
    cleaned = Cleaner(CleanConfig(), special_tokens=bert.special_tokens).clean("[MASK]").text
    (alone,) = bert.tokenize(["[MASK] " + cleaned])
    assert bert.mask_id not in alone.ids


def test_a_flow_without_cloze_heads_makes_the_windows_it_made(
    tiny_task: TaskConfig, bert: BackboneTokenizer
) -> None:
    row = RawRow("f", 0, {"ticket_id": "t", "subject": "a", "body": "the app is slow"}, b"")
    flow = text_flow(tiny_task, bert)
    (prepared,) = flow.prepare([row])
    assert isinstance(prepared, Prepared)
    (window,) = flow.windows(prepared).windows
    assert window.input_ids == ids_of(
        bert, "[CLS]", "a", "[SEP]", "the", "app", "is", "slow", "[SEP]"
    )
