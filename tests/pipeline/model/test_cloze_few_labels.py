"""With few labels a cloze head answers from what pretraining taught, also in a scored night."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from pipeline.batch import window_inputs
from pipeline.bundle import fitting_text_flow, load_spec, scoring_flow, text_flow
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.flow import Prepared
from pipeline.heads import head_slices
from pipeline.model.bundling import Source, make_bundle
from pipeline.model.checkpoint import load_checkpoint, new_classifier, save_checkpoint
from pipeline.model.fit import fit
from pipeline.model.labelled import Example, Labeller, label_matrix
from pipeline.model.metrics import gate_metric
from pipeline.model.recipe import Recipe
from pipeline.model.record_logits import record_logits
from pipeline.prompt import prompted
from pipeline.rows import RawRow
from pipeline.window import make_windows
from schemas.load import parse_task
from schemas.task import WindowConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.flow import TextFlow
    from pipeline.model.labelled import Split
    from pipeline.model.network import Classifier
    from schemas.task import TaskConfig

PROMPT = "it was [MASK]."
# In the toy language things that are so are called so; the labelled texts only have the first.
SAID = {
    "negative": (["broken", "late", "slow", "crash", "error"], ["bad", "never"]),
    "positive": (["thanks", "refund", "please", "help", "quality"], ["good", "great"]),
}
THINGS = ("app", "card", "parcel", "order", "login", "invoice", "service", "price")
LABELLED_WORDS = 1


def sentence(chooser: random.Random, label: str, n_words: int) -> str:
    said = chooser.choice(SAID[label][0][:n_words])
    return f"{chooser.choice(('the', 'my', 'a'))} {chooser.choice(THINGS)} is {said} today"


@pytest.fixture(scope="module")
def backbone(tiny_tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that has learnt to fill gaps of the toy language, any word of it."""
    folder = tmp_path_factory.mktemp("toy")
    torch.manual_seed(1)
    tokenizer = BackboneTokenizer(tiny_tokenizer_path)
    config = BertConfig(
        vocab_size=tokenizer.vocabulary_size, hidden_size=32, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=64, max_position_embeddings=64, pad_token_id=0,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.1,
    )  # fmt: skip
    model = BertForMaskedLM(config)
    learn_language(model, tokenizer)
    model.save_pretrained(folder)
    shutil.copyfile(tiny_tokenizer_path, folder / "tokenizer.json")
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names})
    )
    return folder


def learn_language(model: BertForMaskedLM, tokenizer: BackboneTokenizer) -> None:
    chooser = random.Random(2)
    reader = prompted(tokenizer, PROMPT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(150):
        windows, answers = [], []
        for _ in range(32):
            label = chooser.choice(list(SAID))
            text = sentence(chooser, label, 5)
            (window,) = make_windows(
                reader.tokenize([text]), [text], template=reader.single, config=WindowConfig()
            ).windows
            windows.append(window)
            answers.append(tokenizer._tokenizer.token_to_id(chooser.choice(SAID[label][1])))
        arrays = window_inputs(windows)
        ids = torch.from_numpy(arrays["input_ids"])
        truth = ids.clone()
        truth[ids == tokenizer.mask_id] = torch.tensor(answers)
        hidden = torch.rand(ids.shape) < 0.15  # the gap of the prompt is one of many
        hidden |= (ids == tokenizer.mask_id) & (torch.rand(ids.shape[0], 1) < 0.5)
        seen = torch.where(hidden, tokenizer.mask_id or 0, truth)
        logits = model(input_ids=seen).logits
        loss = nn.functional.cross_entropy(logits[hidden], truth[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def make_task(tiny_task: TaskConfig, backbone: Path, *, cloze: bool) -> TaskConfig:
    words = {label: said[1] for label, said in SAID.items()}
    mood: dict[str, Any] = {"column": "mood", "labels": list(SAID), "review_below": 0.0}
    raw = tiny_task.model_dump(mode="json")
    raw["heads"] = {"mood": mood | ({"cloze": {"prompt": PROMPT, "words": words}} if cloze else {})}
    raw["data"]["text_columns"] = ["body"]
    raw["compress"] |= {"prefer": ["int8_static", "fp32"]}
    raw["train"] |= {
        "backbone": f"path:{backbone}", "dropout": 0.0, "layer_decay": 1.0, "patience_epochs": 9,
    }  # fmt: skip
    return parse_task(raw, source="mood")


def raw_rows(count: int, *, n_words: int, seed: int) -> list[RawRow]:
    chooser = random.Random(seed)
    made = []
    for number in range(count):
        label = list(SAID)[number % 2]
        body = sentence(chooser, label, n_words)
        made.append(RawRow("f", number, {"ticket_id": f"{seed}-{number}", "body": body,
                                         "mood": label}, b""))  # fmt: skip
    return made


def examples_of(
    task: TaskConfig, flow: TextFlow, rows: Sequence[RawRow], split: Split
) -> list[Example]:
    labeller = Labeller(task.heads)
    return [
        Example(
            item.record.record_id, item.text_hash, split, "en", item.texts,
            flow.windows(item).windows, labeller.targets(item),
        )
        for item in flow.prepare(rows)
        if isinstance(item, Prepared)
    ]  # fmt: skip


def trained(
    task: TaskConfig, tokenizer: BackboneTokenizer
) -> tuple[Classifier, list[Example], list[float]]:
    """The model after four epochs on 16 records; these and others, valid and test.

    The macro-F1 on others, before training and after each epoch.
    """
    flow, heads = text_flow(task, tokenizer), head_slices(task.heads)
    few = examples_of(task, flow, raw_rows(16, n_words=LABELLED_WORDS, seed=3), "train")
    others = examples_of(task, flow, raw_rows(60, n_words=5, seed=4), "valid")
    model = new_classifier(task.train, heads)
    target = {"mood": label_matrix(others, "mood", heads[0].config)}
    untrained = gate_metric(record_logits(model, others, pad_id=0), target, heads)
    progress = fit(
        model, train=few, valid=others, heads=heads, config=task.train,
        recipe=Recipe(4, 1e-3, "a test", batch_size=8, head_learning_rate=1e-2),
    )  # fmt: skip
    assert progress.history[-1]["train_loss"] < 0.9 * progress.history[0]["train_loss"]
    scored = [untrained, *(epoch["valid_macro_f1"] for epoch in progress.history)]
    test = [replace(example, split="test") for example in others[::2]]
    return model, [*few, *others[1::2], *test], scored


def test_a_cloze_head_knows_before_the_first_label_what_a_linear_one_has_to_learn(
    tiny_task: TaskConfig, backbone: Path
) -> None:
    """Most words of the other records are in no labelled one; pretraining knows what they mean."""
    tokenizer = BackboneTokenizer(backbone / "tokenizer.json")
    cloze, linear = (
        trained(make_task(tiny_task, backbone, cloze=asked), tokenizer)[2]
        for asked in (True, False)
    )
    assert cloze == [1.0] * 5
    assert linear[0] < 0.7
    assert linear[1] < 0.9


@pytest.fixture(scope="module")
def bundle(tiny_task: TaskConfig, backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = make_task(tiny_task, backbone, cloze=True)
    tokenizer = BackboneTokenizer(backbone / "tokenizer.json")
    model, examples, _ = trained(task, tokenizer)
    folder = tmp_path_factory.mktemp("run")
    save_checkpoint(model, folder / "c", tokenizer=backbone / "tokenizer.json")
    cleaner = text_flow(task, tokenizer).cleaner.version
    source = Source("run-1", "d" * 64, cleaner, tokenizer.special_tokens, pad_id=tokenizer.pad_id)
    make_bundle(
        load_checkpoint(folder / "c", task.train, head_slices(task.heads)), examples, task, source,
        checkpoint=folder / "c", folder=folder / "bundle",
    )  # fmt: skip
    return folder / "bundle"


def test_an_int8_bundle_of_cloze_heads_scores_as_it_was_measured(
    bundle: Path, tiny_task: TaskConfig, backbone: Path
) -> None:
    task, spec = make_task(tiny_task, backbone, cloze=True), load_spec(bundle)
    assert spec.variant == "int8_static"
    assert spec.metrics["mood"].accuracy == 1.0
    fresh = raw_rows(40, n_words=5, seed=9)
    long = RawRow("f", 40, {"ticket_id": "l", "body": "the app is broken today " * 20}, b"")
    outcome = scoring_flow(bundle, task).score([*fresh, long])
    answers = [row.answers["mood"].labels[0] for row in outcome.scored]
    assert answers == [*(row.values["mood"] for row in fresh), "negative"]
    assert len(outcome.scored[-1].spans) > 2
    body = outcome.scored[-1].prepared.texts[-1]
    assert outcome.scored[-1].spans[-1][1] == len(body)


def test_windows_of_the_night_have_the_models_prompt_whatever_the_task_file_has_by_then(
    bundle: Path, tiny_task: TaskConfig, backbone: Path
) -> None:
    (row,) = raw_rows(1, n_words=5, seed=9)
    made = []
    for cloze in (True, False):
        _, flow = fitting_text_flow(bundle, make_task(tiny_task, backbone, cloze=cloze))
        (prepared,) = flow.prepare([row])
        assert isinstance(prepared, Prepared)
        made.append(flow.windows(prepared).windows)
    assert made[0] == made[1]
    assert BackboneTokenizer(bundle / "tokenizer.json").mask_id in made[0][0].input_ids
