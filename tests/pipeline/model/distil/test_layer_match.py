"""Hidden states and relations of student and teacher."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from pipeline.model.batches import Item, tensor_inputs
from pipeline.model.distil.capture import Capture
from pipeline.model.distil.layer_match import LayerMatch, hidden_apart, relations_apart
from pipeline.model.extra_loss import WholeBatch
from pipeline.model.network import Classifier
from pipeline.window import Window
from schemas.distil import DistilConfig
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

WINDOWS = [Window(tuple(range(5, 5 + n)), (0,) * n, 0, 1) for n in (4, 7, 9, 3)]
ITEMS = [Item((WINDOWS[0],), 0), Item((WINDOWS[1], WINDOWS[2]), 1), Item((WINDOWS[3],), 2)]
BOTH: dict[str, Any] = {"hidden": {"weight": 2.0}, "relations": {}}


def bert(*, layers: int, width: int = 16, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=40, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=32, initializer_range=0.5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    encoder: nn.Module = BertModel(config, add_pooling_layer=False)
    return Classifier(encoder, n_logits=3, pooling="mean", dropout=0.0)


def matched(teacher: Classifier, student: Classifier, **changes: Any) -> LayerMatch:
    config = DistilConfig.model_validate({"teacher": "run:a", **BOTH, **changes})
    loss = LayerMatch(teacher, config, pad_id=0, seed=1)
    loss.attach(student)
    return loss


def loss_of(loss: LayerMatch, student: Classifier, items: list[Item], *, passes: int = 1) -> Any:
    windows = [window for item in items for window in item.windows]
    student.train()
    logits = student(**tensor_inputs(student, windows * passes, pad_id=0))
    batch = WholeBatch(len(ITEMS), {}, step=0, total_steps=1)
    return [loss(items, part, batch=batch) for part in logits.chunk(passes)]


def number(loss: torch.Tensor) -> float:
    return float(loss.detach())


def test_nothing_is_apart_between_equal_models() -> None:
    student = bert(layers=2)
    loss = matched(bert(layers=2), student)
    (found,) = loss_of(loss, student, ITEMS)
    assert number(found) == pytest.approx(0.0, abs=1e-9)
    assert list(loss.parameters()) == []
    assert loss.state_dict() == {}


def test_parts_add_up_and_other_weights_are_apart() -> None:
    student = bert(layers=2, seed=5)
    loss = matched(bert(layers=4), student)
    (whole,) = loss_of(loss, student, ITEMS)
    assert number(whole) > 0.01
    parts = [number(loss_of(loss, student, part)[0]) for part in (ITEMS[:1], ITEMS[1:])]
    assert sum(parts) == pytest.approx(number(whole), rel=1e-4)
    assert loss.epoch_numbers()["layer_loss"] == pytest.approx(2 * number(whole), rel=1e-4)


def test_both_passes_of_r_drop_are_held_against_the_teacher() -> None:
    student = bert(layers=2, seed=5)
    loss = matched(bert(layers=2), student)
    (once,) = loss_of(loss, student, ITEMS)
    one, other = loss_of(loss, student, ITEMS, passes=2)
    assert [number(one), number(other)] == pytest.approx([number(once)] * 2)


def test_a_narrower_student_learns_projections_that_its_model_does_not_hold() -> None:
    student = bert(layers=2, width=8)
    before = set(student.state_dict())
    loss = matched(bert(layers=4), student, hidden={"pairs": [[0, 0], [2, 4]]})
    assert [tuple(weight.shape) for weight in loss.parameters()] == [(16, 8), (16, 8)]
    (found,) = loss_of(loss, student, ITEMS)
    found.backward()
    assert all(float(weight.grad.abs().sum()) > 0 for weight in loss.parameters())
    assert student.encoder.embeddings.word_embeddings.weight.grad is not None
    assert set(student.state_dict()) == before


def test_hooks_keep_nothing_in_evaluation_and_go_away() -> None:
    student = bert(layers=2)
    capture = Capture(student.encoder, hidden=True, layer=1)
    inputs = tensor_inputs(student, WINDOWS, pad_id=0)
    student.eval()(**inputs)
    assert capture.take() == ((), ())
    student.train()(**inputs)
    hidden, parts = capture.take()
    assert [tuple(each.shape) for each in (*hidden, *parts)] == [(4, 16, 16)] * 6
    capture.close()
    student(**inputs)
    assert capture.take() == ((), ())


def test_other_families_name_their_projections_otherwise() -> None:
    config = DistilBertConfig(vocab_size=40, dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    encoder = DistilBertModel(config).train()
    capture = Capture(encoder, hidden=False, layer=0)
    encoder(input_ids=torch.arange(6)[None])
    _, (queries, keys, values) = capture.take()
    assert queries.shape == keys.shape == values.shape == (1, 6, 8)


def test_hidden_states_by_hand() -> None:
    mine, theirs = torch.zeros(1, 3, 2), torch.tensor([[[1.0, 1.0], [3.0, 1.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    assert hidden_apart(mine, theirs, mask).tolist() == [3.0]  # (1 + 5) / 2, padding left out


def test_relations_by_hand() -> None:
    mine, theirs = torch.tensor([[[0.0], [0.0], [7.0]]]), torch.tensor([[[1.0], [2.0], [9.0]]])
    mask = torch.tensor([[True, True, False]])
    by_token = []
    for token in (1.0, 2.0):
        powers = [math.exp(token * other) for other in (1.0, 2.0)]
        shares = [power / sum(powers) for power in powers]
        by_token.append(sum(q * math.log(q / 0.5) for q in shares))
    got = relations_apart([mine] * 3, [theirs] * 3, mask, n_heads=1)
    assert got.tolist() == pytest.approx([sum(by_token) / 2], rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relations": {"teacher_layer": 4}}, r"relations.teacher_layer: got 4, expected 0 to 1"),
        ({"relations": {"heads": 3}}, r"relations.heads: got 3, which does not divide .* 16"),
        ({"hidden": {"pairs": [[0, 0], [3, 2]]}}, r"hidden.pairs: got 3, expected 0 to 2"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        matched(bert(layers=2), bert(layers=2), **changes)
