"""Which parts stay when a share of them goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model.layers import encoder_layers
from pipeline.model.prune.choose import choose_layers, most_important, without_layers
from schemas.errors import ConfigError
from schemas.prune import PruneConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.heads import HeadSlice
    from pipeline.model.labelled import Example
    from pipeline.model.network import Classifier
    from schemas.task import TrainConfig

SCORES = [torch.tensor([0.1, 0.9, 0.5, 0.3]), torch.tensor([0.7, 0.2, 0.6, 0.8])]


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        (0.0, [[0, 1, 2, 3], [0, 1, 2, 3]]),
        (0.25, [[1, 2, 3], [0, 2, 3]]),
        (0.5, [[1], [0, 2, 3]]),  # more of the layer that matters less
        (0.9, [[1], [3]]),  # one stays in each
    ],
)
def test_the_lowest_of_all_layers_go(share: float, kept: list[list[int]]) -> None:
    assert most_important(SCORES, share=share) == kept


def test_counts_are_rounded_to_lots() -> None:
    scores = [torch.arange(1.0, 33.0), torch.arange(1.0, 33.0)]
    kept = most_important(scores, share=0.3, together=8)  # 19 of 64 go: 22 or 23 of a layer stay
    assert [len(layer) for layer in kept] == [24, 24]
    assert kept[0] == list(range(8, 32))
    assert [len(layer) for layer in most_important(scores, share=0.99, together=8)] == [8, 8]


def test_of_equals_the_earlier_stays() -> None:
    assert most_important([torch.ones(4)], share=0.5) == [[0, 1]]


@given(
    share=st.floats(0, 0.99),
    scores=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=1, max_size=4),
)
def test_a_layer_is_never_empty_and_its_best_stay(share: float, scores: list[list[float]]) -> None:
    kept = most_important([torch.tensor(layer) for layer in scores], share=share)
    for layer, places in zip(scores, kept, strict=True):
        assert places == sorted(set(places))
        assert places
        gone = [score for place, score in enumerate(layer) if place not in places]
        assert all(layer[place] >= max(gone, default=0.0) for place in places)


def layers_that_go(
    model: Classifier, examples: list[Example], slices: tuple[HeadSlice, ...],
    train: TrainConfig, **prune: object,
) -> list[int]:  # fmt: skip
    config = PruneConfig.model_validate(prune)
    return choose_layers(model, examples, slices, train=train, prune=config, pad_id=0)


def test_the_top_layers_go_or_those_that_are_named(
    tiny_model: Classifier, toy_examples: list[Example], toy_heads: tuple[HeadSlice, ...],
    toy_config: Callable[..., TrainConfig],
) -> None:  # fmt: skip
    given_ = (tiny_model, toy_examples[:8], toy_heads, toy_config())
    assert layers_that_go(*given_, layers=1) == [1]
    assert layers_that_go(*given_, layers=[0]) == [0]
    assert layers_that_go(*given_, heads=0.5) == []
    with pytest.raises(ConfigError, match="layers: got 2 of an encoder with 2; leave one"):
        layers_that_go(*given_, layers=2)


@pytest.mark.parametrize("idle", [0, 2])
def test_a_layer_that_does_nothing_goes_first(
    idle: int, classifier_of: Callable[..., Classifier], toy_heads: tuple[HeadSlice, ...],
    make_example: Callable[..., Example], toy_config: Callable[..., TrainConfig],
) -> None:  # fmt: skip
    """Of ModernBERT, whose layers only add to what they get, and whose first one must stay."""
    model = classifier_of("modernbert")
    model.heads = torch.nn.Linear(24, toy_heads[-1].columns.stop)
    torch.nn.init.normal_(model.heads.weight, std=20.0)  # sure of itself
    layer = encoder_layers(model.encoder)[idle]
    with torch.no_grad():
        for name in ("attn.Wo", "mlp.Wo"):
            layer.get_submodule(name).weight.zero_()
    examples = [make_example(f"r{n}", queue=n % 3, seed=n) for n in range(9)]
    # Labels that the model gives itself, so that any change of it raises the loss.
    examples = [with_answers(model, example) for example in examples]
    gone = layers_that_go(
        model, examples, toy_heads, toy_config(), layers=1, layer_choice="least_harm"
    )
    assert gone == [2] if idle == 2 else gone in ([1], [2])
    assert len(encoder_layers(model.encoder)) == 3


def with_answers(model: Classifier, example: Example) -> Example:
    from dataclasses import replace

    from pipeline.model.record_logits import record_logits

    logits = record_logits(model, [example], pad_id=0)[0]
    topics = tuple(int(value > 0) for value in logits[3:5])
    return replace(example, targets={"queue": int(logits[:3].argmax()), "topics": topics})


def test_layers_are_put_back(classifier_of: Callable[..., Classifier]) -> None:
    encoder = classifier_of("distilbert").encoder
    before = encoder_layers(encoder)
    with without_layers(encoder, [0, 2]):
        assert list(encoder.transformer.layer) == [before[1]]
    assert encoder_layers(encoder) == before
