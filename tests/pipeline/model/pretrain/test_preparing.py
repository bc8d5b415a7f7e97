"""From a backbone's folder to the model before its first step, and back to a backbone's folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertModel,
)

from pipeline.model.backbone import load_encoder, save_tokenizer
from pipeline.model.pretrain.lesson import make_lesson
from pipeline.model.pretrain.packing import NO_PAIR, load_sequences, pack
from pipeline.model.pretrain.pieces import PieceTokenizer
from pipeline.model.pretrain.preparing import prepare, save_finished
from pipeline.model.pretrain.starting import fit_head, load_start, reload
from pipeline.model.pretrain.tokenizer_training import train_tokenizer
from schemas.errors import ArtifactError, ConfigError
from schemas.pretraining import Prepared, PretrainingRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.pretrain.corpus import Corpus
    from schemas.home import Home
    from schemas.task import TaskConfig

    MakeTask = Callable[..., TaskConfig]


@pytest.fixture
def place(home: Home) -> PretrainingRun:
    place = PretrainingRun(home, "tiny", "trial")
    place.folder.mkdir(parents=True)
    return place


def prepared_from(
    task: TaskConfig, corpus: Corpus, place: PretrainingRun, tokenizer_path: Path
) -> Prepared:
    if tokenizer_path != place.source_tokenizer:
        shutil.copyfile(tokenizer_path, place.source_tokenizer)
    return prepare(task, corpus, place)


def test_a_backbone_without_a_head_gets_one_fitted_and_keeps_its_encoder(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_tokenizer_path: Path
) -> None:
    task = pretrain_task(head_steps=20)
    prepared = prepared_from(task, corpus, place, tiny_tokenizer_path)
    assert prepared.head_steps == 20
    assert Prepared.read(place.prepared) == prepared
    before = load_encoder(task.train.backbone, dropout=0.1).state_dict()
    after = load_encoder(f"path:{place.start}", dropout=0.1).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    start = load_start(task.train.backbone, task.pretrain)
    train, valid = load_sequences(place.train), load_sequences(place.valid)
    assert sum(map(len, train)) == prepared.tokens
    unfitted = make_lesson(
        start.model, task, PieceTokenizer(tiny_tokenizer_path), train=train, valid=valid
    )
    assert prepared.before["loss"] < unfitted.measure()["loss"]
    model = reload(str(place.start), task.pretrain)
    again = make_lesson(model, task, PieceTokenizer(tiny_tokenizer_path), train=train, valid=valid)
    assert again.measure()["loss"] == pytest.approx(prepared.before["loss"], abs=1e-6)


def test_a_head_that_is_there_is_kept(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_backbone: Path,
    tiny_tokenizer_path: Path, tmp_path: Path,
) -> None:  # fmt: skip
    folder = tmp_path / "with_head"
    shutil.copytree(tiny_backbone, folder)
    torch.manual_seed(5)
    BertForMaskedLM(BertConfig.from_pretrained(folder)).save_pretrained(folder)
    task = pretrain_task()
    train = task.train.model_copy(update={"backbone": f"path:{folder}"})
    task = task.model_copy(update={"train": train})
    assert load_start(task.train.backbone, task.pretrain).missing == ()
    assert prepared_from(task, corpus, place, tiny_tokenizer_path).head_steps == 0


def test_only_the_missing_parameters_are_fitted(
    pretrain_task: MakeTask, corpus: Corpus, piece_tokenizer: PieceTokenizer
) -> None:
    task = pretrain_task()
    start = load_start(task.train.backbone, task.pretrain)
    names = {name for name, each in start.model.named_parameters()
             if any(each is missing for missing in start.missing)}  # fmt: skip
    assert names
    assert all(name.startswith("cls.predictions.") for name in names)
    before = {name: tensor.clone() for name, tensor in start.model.named_parameters()}
    documents = piece_tokenizer.documents(corpus.train)
    train = pack(documents, template=piece_tokenizer.single, max_tokens=32, packed=True)
    lesson = make_lesson(start.model, task, piece_tokenizer, train=train, valid=train)
    fit_head(lesson.objective, start.missing, lesson.feed, task.pretrain, pad_id=0)
    changed = {
        name
        for name, tensor in start.model.named_parameters()
        if not torch.equal(tensor, before[name])
    }
    assert changed == names
    assert all(parameter.requires_grad for parameter in start.model.parameters())


def test_a_head_is_fitted_in_parts_as_in_one_piece(
    pretrain_task: MakeTask, corpus: Corpus, piece_tokenizer: PieceTokenizer
) -> None:
    documents = piece_tokenizer.documents(corpus.train)
    train = pack(documents, template=piece_tokenizer.single, max_tokens=32, packed=False)

    def fitted(micro_batch_size: int | None) -> tuple[list[torch.Tensor], int]:
        task = pretrain_task(head_steps=5, micro_batch_size=micro_batch_size)
        torch.manual_seed(5)
        start = load_start(task.train.backbone, task.pretrain)
        lesson = make_lesson(start.model, task, piece_tokenizer, train=train, valid=train)
        rows: list[int] = []
        lesson.objective.register_forward_pre_hook(
            lambda module, values, named: rows.append(len(named["labels"])), with_kwargs=True
        )
        fit_head(lesson.objective, start.missing, lesson.feed, task.pretrain, pad_id=0)
        return [parameter.detach() for parameter in start.missing], max(rows)

    whole, most = fitted(None)
    parts, most_in_parts = fitted(2)
    assert (most, most_in_parts) == (8, 2)
    for one, other in zip(whole, parts, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_new_words_reach_sequences_model_and_tokenizer(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_tokenizer_path: Path
) -> None:
    task = pretrain_task(new_tokens=2)
    prepared = prepared_from(task, corpus, place, tiny_tokenizer_path)
    # `fast` and `time` are the only words of the corpus that are cut into letters.
    assert set(prepared.new_tokens) == {"fast", "time"}
    assert prepared.pieces_per_word[1] == 1 < prepared.pieces_per_word[0]
    size = PieceTokenizer(tiny_tokenizer_path).vocabulary_size
    used = {token for sequence in load_sequences(place.train) for token in sequence.ids}
    assert {size, size + 1} <= used
    encoder = load_encoder(f"path:{place.start}", dropout=0.1)
    assert encoder.get_input_embeddings().weight.shape[0] == size + 2  # type: ignore[operator]
    save_tokenizer(f"path:{place.start}", place.folder / "again.json")
    mine = PieceTokenizer(place.start / "tokenizer.json").pieces(["it was fast, on time"])
    assert PieceTokenizer(place.folder / "again.json").pieces(["it was fast, on time"]) == mine
    theirs = AutoTokenizer.from_pretrained(place.start)("fast", add_special_tokens=False)
    assert theirs["input_ids"] == [size + prepared.new_tokens.index("fast")]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_model_from_scratch_with_a_tokenizer_of_its_own(
    kind: str, pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun
) -> None:
    task = pretrain_task(
        from_scratch={"hidden_size": 16, "layers": 1, "heads": 2},
        train_tokenizer={"model": kind, "vocab_size": 300},
    )
    path = place.source_tokenizer
    assert task.pretrain.train_tokenizer is not None
    size = train_tokenizer(corpus.train, task.pretrain.train_tokenizer, path)
    prepared = prepared_from(task, corpus, place, path)
    assert prepared.head_steps == 0
    # Small random weights know nothing: about as perplexed as there are pieces.
    assert prepared.before["perplexity"] == pytest.approx(size, rel=0.15)
    encoder = load_encoder(f"path:{place.start}", dropout=0.1)
    assert encoder.get_input_embeddings().weight.shape == (size, 16)  # type: ignore[operator]
    save_tokenizer(f"path:{place.start}", place.folder / "again.json")
    again = PieceTokenizer(place.folder / "again.json")
    assert again.pieces(["the invoice"]) == PieceTokenizer(path).pieces(["the invoice"])
    assert AutoTokenizer.from_pretrained(place.start).mask_token_id == 4


def test_next_sentence_pairs_are_learned_from(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_tokenizer_path: Path
) -> None:
    task = pretrain_task(next_sentence=True)
    prepared = prepared_from(task, corpus, place, tiny_tokenizer_path)
    train = load_sequences(place.train)
    assert {sequence.next_label for sequence in train} == {0, 1}
    assert {sequence.next_label for sequence in load_sequences(place.valid)} == {NO_PAIR}
    assert prepared.head_steps > 0
    assert hasattr(reload(str(place.start), task.pretrain).cls, "seq_relationship")


def test_settings_that_do_not_suit_the_backbone(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_tokenizer_path: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    folder = tmp_path / "distil"
    DistilBertModel(
        DistilBertConfig(vocab_size=200, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    ).save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"next_sentence is BERT's own question, got a backbone"):
        load_start(f"path:{folder}", pretrain_task(next_sentence=True).pretrain)
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        load_start(f"path:{folder}", pretrain_task().pretrain)
    task = pretrain_task(max_tokens=600)
    with pytest.raises(ConfigError, match=r"pretrain\.max_tokens 600 is more than the backbone"):
        prepared_from(task, corpus, place, tiny_tokenizer_path)


def test_the_finished_folder_has_what_the_start_had(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_tokenizer_path: Path
) -> None:
    task = pretrain_task()
    prepared_from(task, corpus, place, tiny_tokenizer_path)
    model = reload(str(place.start), task.pretrain)
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(0.5)
    save_finished(model, place)
    names = {path.name for path in place.start.iterdir()}
    assert {path.name for path in place.model.iterdir()} == names
    assert names >= {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}
    encoder = load_encoder(place.address, dropout=0.1)
    assert (encoder.get_input_embeddings().weight == 0.5).all()  # type: ignore[operator]


def test_twins_need_no_head_and_have_no_perplexity(
    pretrain_task: MakeTask, corpus: Corpus, place: PretrainingRun, tiny_tokenizer_path: Path
) -> None:
    task = pretrain_task(objective="simcse")
    prepared = prepared_from(task, corpus, place, tiny_tokenizer_path)
    assert (prepared.head_steps, set(prepared.before)) == (0, {"loss"})
    train = load_sequences(place.train)
    assert len(train) == prepared.sequences == len(corpus.train)  # a text is never packed
    model = reload(str(place.start), task.pretrain)
    assert type(model).__name__ == "BertModel"
    lesson = make_lesson(
        model, task, PieceTokenizer(place.tokenizer),
        train=train, valid=load_sequences(place.valid),
    )  # fmt: skip
    assert lesson.measure() == prepared.before
