from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from pipeline.model.batches import has_segments
from pipeline.model.pretrain.masking import IGNORED, Example
from pipeline.model.pretrain.objective import MaskedLanguage, SimCse, collate

BERT = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)


def example(*ids: int, asked: tuple[int, ...] = (), next_label: int = -1) -> Example:
    labels = np.full(len(ids), IGNORED, dtype=np.int64)
    labels[list(asked)] = [ids[place] for place in asked]
    return Example(np.array(ids), np.zeros(len(ids), dtype=np.int64), labels, next_label)


BATCH = [example(2, 5, 6, 7, 3, asked=(1, 3)), example(2, 9, 3, asked=(1,)), example(2, 8, 3)]


def models() -> list[PreTrainedModel]:
    torch.manual_seed(3)
    common = {"vocab_size": 40, "pad_token_id": 0}
    modern = ModernBertConfig(
        **common, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3,
    )  # fmt: skip
    distil = DistilBertConfig(**common, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    roberta = RobertaConfig(**{**BERT.to_dict(), "pad_token_id": 0})
    return [
        BertForMaskedLM(BERT),
        RobertaForMaskedLM(roberta),
        DistilBertForMaskedLM(distil),
        ModernBertForMaskedLM(modern),
    ]


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
@torch.no_grad()
def test_a_head_that_only_sees_hidden_places_gives_the_whole_heads_loss(
    model: PreTrainedModel,
) -> None:
    model.eval()
    tensors = collate(BATCH, pad_id=0, segments=has_segments(model))
    labels, _ = tensors.pop("labels"), tensors.pop("next_labels")
    whole = model(**tensors).logits
    expected = torch.nn.functional.cross_entropy(
        whole.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    objective = MaskedLanguage(model)
    losses = objective(labels=labels, next_labels=torch.tensor([-1, -1, -1]), **tensors)
    assert losses[0] == pytest.approx(float(expected), rel=1e-5)
    assert losses[1] == 0
    assert objective.weights(BATCH).tolist() == [3, 1]
    # Outside of the objective the model answers as ever.
    assert torch.equal(model(**tensors).logits, whole)


@torch.no_grad()
def test_the_next_sentence_question_is_a_loss_of_its_own() -> None:
    torch.manual_seed(3)
    model = BertForPreTraining(BERT).eval()
    pairs = [example(2, 5, 3, 6, 3, asked=(1,), next_label=0), example(2, 7, 3, 8, 3, next_label=1)]
    tensors = collate([*pairs, BATCH[2]], pad_id=0, segments=True)
    inputs = {name: tensors[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    relation = model(**inputs).seq_relationship_logits[:2]
    expected = torch.nn.functional.cross_entropy(relation, torch.tensor([0, 1]), reduction="sum")
    losses = MaskedLanguage(model)(**tensors)
    assert losses[1] == pytest.approx(float(expected), rel=1e-5)
    assert MaskedLanguage(model).weights([*pairs, BATCH[2]]).tolist() == [1, 2]


@torch.no_grad()
def test_twins_are_found_and_the_temperature_sharpens() -> None:
    torch.manual_seed(3)
    settings = BERT.to_dict() | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertModel(BertConfig(**settings), add_pooling_layer=False).eval()
    tensors = collate(BATCH, pad_id=0, segments=True)
    sharp, dull = (
        SimCse(model, pooling="mean", temperature=temperature)(**tensors)
        for temperature in (0.05, 1.0)
    )
    mask = tensors["attention_mask"].unsqueeze(-1)
    inputs = {name: tensors[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    pooled = (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
    vectors = pooled / pooled.norm(dim=1, keepdim=True)
    likeness = (vectors @ vectors.T).double()
    expected = -torch.log_softmax(likeness / 0.05, dim=1).diagonal().sum()
    assert sharp[0] == pytest.approx(float(expected), rel=1e-3)
    assert sharp[0] < dull[0]
    assert sharp[1] == 0


def test_rows_are_padded_to_a_multiple_of_eight() -> None:
    tensors = collate(BATCH, pad_id=1, segments=False)
    assert "token_type_ids" not in tensors
    assert tensors["input_ids"][1].tolist() == [2, 9, 3, 1, 1, 1, 1, 1]
    assert tensors["attention_mask"].sum(dim=1).tolist() == [5, 3, 3]
    assert tensors["labels"][0].tolist() == [IGNORED, 5, IGNORED, 7, *[IGNORED] * 4]


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_twins_are_pooled_as_fine_tuning_pools(pooling: Literal["mean", "cls", "max"]) -> None:
    torch.manual_seed(3)
    settings = BERT.to_dict() | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertModel(BertConfig(**settings), add_pooling_layer=False).eval()
    tensors = collate(BATCH, pad_id=0, segments=True)
    inputs = {name: tensors[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    vectors = []
    for hidden, mask in zip(
        model(**inputs).last_hidden_state, inputs["attention_mask"].bool(), strict=True
    ):
        real = hidden[mask]
        vectors.append({"mean": real.mean(0), "cls": real[0], "max": real.amax(0)}[pooling])
    unit = torch.nn.functional.normalize(torch.stack(vectors))
    expected = -torch.log_softmax(unit @ unit.T / 0.05, dim=1).diagonal().sum()
    loss, _ = SimCse(model, pooling=pooling, temperature=0.05)(**tensors)
    assert loss == pytest.approx(float(expected), rel=1e-3)
