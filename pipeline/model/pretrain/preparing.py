"""Before the first step: texts into sequences, the backbone into the model to start from."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pipeline.model.backbone import check_length, locate
from pipeline.model.pretrain.lesson import make_lesson
from pipeline.model.pretrain.packing import pack, pair_up, save_sequences
from pipeline.model.pretrain.pieces import PieceTokenizer, pieces_per_word, unknown_share
from pipeline.model.pretrain.starting import fit_head, load_start, random_start
from pipeline.model.pretrain.vocabulary import choose_words, extend_model, extend_tokenizer
from schemas.bundle import TOKENIZER_FILE
from schemas.pretraining import Prepared

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pipeline.model.pretrain.corpus import Corpus
    from pipeline.model.pretrain.packing import PieceSequence
    from pipeline.model.pretrain.starting import Start
    from schemas.pretraining import PretrainingRun
    from schemas.task import TaskConfig


_CONTROL = ("pad", "unk", "cls", "sep", "mask")


@dataclass(frozen=True)
class Sequences:
    """The corpus as one vocabulary writes it."""

    train: list[PieceSequence]
    valid: list[PieceSequence]
    pieces_per_word: float
    unknown_words: float


def prepare(task: TaskConfig, corpus: Corpus, place: PretrainingRun) -> Prepared:
    """Leaves the start model, its tokenizer and the sequences in `place`.

    The backbone is measured with its own vocabulary, `place.source_tokenizer`, once its head is
    fitted where it came without one; only then new words are added.

    Raises:
        ConfigError: the settings do not suit the backbone.
        ArtifactError: the backbone cannot be loaded.
        DataContractError: nothing held out can be measured.
    """
    tokenizer = PieceTokenizer(place.source_tokenizer)
    start = _start(task, tokenizer)
    sequences = _sequences(task, corpus, tokenizer)
    head_steps, before = _measured(task, start, tokenizer, sequences)
    old = sequences
    shutil.copyfile(place.source_tokenizer, place.tokenizer)
    words: tuple[str, ...] = ()
    if task.pretrain.new_tokens:
        words = _extend(task, corpus, start.model, place)
        sequences = _sequences(task, corpus, PieceTokenizer(place.tokenizer))
    save_sequences(sequences.train, place.train)
    save_sequences(sequences.valid, place.valid)
    _save_start(start.model, task, place)
    prepared = Prepared(
        before=before,
        new_tokens=words,
        pieces_per_word=(old.pieces_per_word, sequences.pieces_per_word),
        unknown_words=(old.unknown_words, sequences.unknown_words),
        head_steps=head_steps,
        sequences=len(sequences.train),
        tokens=sum(map(len, sequences.train)),
    )
    prepared.write(place.prepared)
    return prepared


def save_finished(model: PreTrainedModel, place: PretrainingRun) -> None:
    """Writes the finished backbone, with the tokenizer that it started with."""
    shutil.rmtree(place.model, ignore_errors=True)
    model.save_pretrained(place.model)
    for file in place.start.glob("*.json"):
        if not (place.model / file.name).exists():
            shutil.copyfile(file, place.model / file.name)


def _save_start(model: PreTrainedModel, task: TaskConfig, place: PretrainingRun) -> None:
    shutil.rmtree(place.start, ignore_errors=True)
    model.save_pretrained(place.start)
    if task.pretrain.train_tokenizer is None:
        tokenizer = AutoTokenizer.from_pretrained(locate(task.train.backbone))
    else:
        names = {f"{name}_token": f"[{name.upper()}]" for name in _CONTROL}
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(place.tokenizer), **names)
    tokenizer.save_pretrained(place.start)  # its settings; the pieces are ours
    shutil.copyfile(place.tokenizer, place.start / TOKENIZER_FILE)


def _measured(
    task: TaskConfig, start: Start, tokenizer: PieceTokenizer, sequences: Sequences
) -> tuple[int, dict[str, float]]:
    """How many steps the head took, and the held-out numbers then."""
    check_length(start.model.base_model, max_tokens=max_tokens(task), setting="pretrain.max_tokens")
    lesson = make_lesson(start.model, task, tokenizer, train=sequences.train, valid=sequences.valid)
    if not start.missing:
        return 0, lesson.measure()
    steps = fit_head(
        lesson.objective, start.missing, lesson.feed, task.pretrain, pad_id=tokenizer.pad_id
    )
    return steps, lesson.measure()


def max_tokens(task: TaskConfig) -> int:
    """How long a sequence may be."""
    return task.pretrain.max_tokens or task.window.max_tokens


def _start(task: TaskConfig, tokenizer: PieceTokenizer) -> Start:
    if task.pretrain.from_scratch is not None:
        return random_start(task.pretrain, tokenizer, max_tokens=max_tokens(task))
    return load_start(task.train.backbone, task.pretrain)


def _sequences(task: TaskConfig, corpus: Corpus, tokenizer: PieceTokenizer) -> Sequences:
    config, longest = task.pretrain, max_tokens(task)
    train, valid = tokenizer.documents(corpus.train), tokenizer.documents(corpus.valid)
    if config.next_sentence:
        learned = pair_up(
            train, single=tokenizer.single, pair=tokenizer.pair, max_tokens=longest,
            seed=config.seed,
        )  # fmt: skip
    else:
        # A twin is a text of its own; two texts in one sequence have no meaning in common.
        packed = config.packed and config.objective == "mlm"
        learned = pack(train, template=tokenizer.single, max_tokens=longest, packed=packed)
    return Sequences(
        train=learned,
        valid=pack(valid, template=tokenizer.single, max_tokens=longest, packed=False),
        pieces_per_word=pieces_per_word(valid),
        unknown_words=unknown_share(valid, tokenizer.unk_id),
    )


def _extend(
    task: TaskConfig, corpus: Corpus, model: PreTrainedModel, place: PretrainingRun
) -> tuple[str, ...]:
    """Adds words to tokenizer and model; answers them."""
    config = task.pretrain
    chosen = choose_words(
        corpus.train, PieceTokenizer(place.source_tokenizer), limit=config.new_tokens,
        min_count=config.new_token_min_count,
    )  # fmt: skip
    ids = extend_tokenizer(place.source_tokenizer, place.tokenizer, chosen)
    extend_model(model, {ids[each.word]: each.pieces for each in chosen}, seed=config.seed)
    return tuple(each.word for each in chosen)
