"""Heads: what each kind needs, and how its scores and answers are named."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.load import parse_task
from schemas.task import HeadConfig, TrainConfig

ASPECT = {"kind": "aspect", "column": "m", "labels": ["good", "bad"], "aspects": ["food", "staff"]}


def task(head: dict[str, Any]) -> Any:
    raw = {"name": "mine", "data": {"incoming": "i", "text_columns": ["t"]}, "heads": {"h": head}}
    return parse_task(raw, source="here")


def test_a_head_of_aspects_has_a_softmax_for_each() -> None:
    made = task(ASPECT)
    head = made.heads["h"]
    assert head.n_scores == 6
    assert head.score_names[:3] == ("food:none", "food:good", "food:bad")
    assert head.answer_labels == ("food:good", "food:bad", "staff:good", "staff:bad")
    assert made.label_sets["h"].labels == head.score_names


def test_other_heads_are_named_by_their_labels() -> None:
    for kind in ("single", "multi"):
        head = task({"kind": kind, "column": "c", "labels": ["a", "b"]}).heads["h"]
        assert head.score_names == head.answer_labels == ("a", "b")
        assert head.n_scores == 2


def test_one_label_is_enough_for_aspects() -> None:
    head = task({**ASPECT, "labels": ["mentioned"]}).heads["h"]
    assert head.n_scores == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aspects": []}, "a head of kind 'aspect' needs aspects"),
        ({"kind": "single"}, "a head of kind 'single' takes no aspects"),
        ({"kind": "multi"}, "a head of kind 'multi' takes no aspects"),
        ({"aspects": ["food", "food"]}, "repeated aspect 'food'"),
        ({"labels": ["good", "good"]}, "repeated label 'good'"),
        ({"labels": ["good", "none"]}, "'none' is not one of them"),
        ({"labels": []}, "labels of a head of kind 'aspect' are what an aspect may have"),
        ({"pair_separator": ""}, r"heads\.h\.pair_separator"),
        ({"kind": "aspects"}, r"heads\.h\.kind"),
    ],
)
def test_an_unsound_head_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        task({**ASPECT, **changes})
    assert "heads.h" in str(caught.value)


@pytest.mark.parametrize("field", ["aspects", "labels"])
def test_the_order_of_aspects_and_labels_is_part_of_the_model(field: str) -> None:
    swapped = {**ASPECT, field: ASPECT[field][::-1]}  # type: ignore[index]
    assert task(ASPECT).label_sets["h"].digest != task(swapped).label_sets["h"].digest


def test_recipes_are_as_they_were_unless_asked() -> None:
    config = TrainConfig()
    assert (config.pooling, config.window_pooling) == ("mean", "mean")
    assert (config.class_weights, config.focal_gamma, config.label_smoothing) == ("none", 0.0, 0.0)
    assert HeadConfig(column="c", labels=("a", "b")).aspects == ()


SINGLE = {"column": "c", "labels": ["a", "b"]}


def test_a_single_head_may_have_texts_outside() -> None:
    assert task(SINGLE).heads["h"].outside is None
    outside = task({**SINGLE, "outside": {"labels": ["oos"]}}).heads["h"].outside
    assert (outside.labels, outside.keep) == (("oos",), 0.95)
    assert task({**SINGLE, "outside": {"keep": 0.5}}).heads["h"].outside.labels == ()


def test_texts_outside_are_none_of_the_models_labels() -> None:
    made = task({**SINGLE, "outside": {"labels": ["oos"]}})
    assert made.label_sets["h"].digest == task(SINGLE).label_sets["h"].digest
    assert made.heads["h"].n_scores == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "multi"}, "a head of kind 'multi' takes no outside"),
        ({"kind": "aspect", "aspects": ["x"]}, "a head of kind 'aspect' takes no outside"),
        ({"outside": {"labels": ["oos", "b"]}}, "'b' is one of the head's labels and of outside"),
        ({"outside": {"labels": [" oos"]}}, "outside label ' oos' is blank or has white space"),
        ({"outside": {"labels": [""]}}, "outside label '' is blank"),
        ({"outside": {"keep": 0}}, r"heads\.h\.outside\.keep"),
        ({"outside": {"keep": 1.1}}, r"heads\.h\.outside\.keep"),
        ({"outside": {"label": ["oos"]}}, r"heads\.h\.outside"),
    ],
)
def test_unsound_texts_outside_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task({**SINGLE, "outside": {"labels": ["oos"]}, **changes})
