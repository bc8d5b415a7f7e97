from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.bundle import BundleSpec
from schemas.errors import ConfigError
from schemas.head import HeadConfig
from schemas.load import parse_task

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

WORDS = {"negative": ["bad", "terrible"], "positive": ["good"]}
CLOZE = {"prompt": "Overall it was [MASK].", "words": WORDS}
HEAD = {"column": "c", "labels": ["negative", "positive"], "cloze": CLOZE}


def task(**heads: Any) -> TaskConfig:
    raw = {"name": "t", "data": {"incoming": "x", "text_columns": ["text"]}, "heads": heads}
    return parse_task(raw, source="t")


def test_a_task_has_the_prompt_of_its_cloze_heads() -> None:
    plain = {"column": "u", "labels": ["yes", "no"]}
    other = HEAD | {
        "column": "d",
        "cloze": CLOZE | {"words": {"negative": ["no"], "positive": ["y"]}},
    }
    both = task(urgent=plain, mood=HEAD, other=other)
    assert both.prompt == "Overall it was [MASK]."
    assert both.heads["urgent"].cloze is None
    assert both.heads["mood"].cloze is not None
    assert both.heads["mood"].cloze.words["negative"] == ("bad", "terrible")
    assert task(urgent=plain).prompt is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": "It was."}, r"the prompt has \[MASK\] 0 times, expected once"),
        ({"prompt": "[MASK] or [MASK]"}, r"the prompt has \[MASK\] 2 times"),
        ({"prompt": " [MASK] "}, r"the prompt is \[MASK\] alone"),
        ({"words": {"negative": ["bad"]}}, "cloze.words has none for label 'positive'"),
        ({"words": WORDS | {"neutral": ["okay"]}}, "cloze.words names 'neutral', which is not one"),
        ({"words": WORDS | {"positive": []}}, "label 'positive' has no words"),
        ({"words": WORDS | {"positive": [" good"]}}, "word ' good' of label 'positive' is blank"),
        ({"words": WORDS | {"positive": ["bad"]}}, "word 'bad' is named twice"),
        ({"promt": "x"}, r"unknown key 'heads\.mood\.cloze\.promt'"),
    ],
)
def test_an_unsound_cloze_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        task(mood=HEAD | {"cloze": CLOZE | changes})
    assert "heads.mood" in str(caught.value)


def test_one_gap_is_for_one_label() -> None:
    with pytest.raises(ConfigError, match="a head of kind 'multi' takes no cloze"):
        task(mood=HEAD | {"kind": "multi"})


def test_a_text_is_read_with_one_prompt() -> None:
    other = HEAD | {"cloze": CLOZE | {"prompt": "All in all [MASK]"}}
    with pytest.raises(
        ConfigError, match=r"cloze heads \['mood', 'other'\] have different prompts"
    ):
        task(mood=HEAD, other=other)


def test_another_prompt_is_another_model(tiny_spec: BundleSpec) -> None:
    digests = {tiny_spec.digest}
    for prompt in ("It was [MASK]", "It is [MASK]"):
        digests.add(with_cloze(tiny_spec, prompt).digest)
    assert len(digests) == 3


def test_a_model_with_another_prompt_still_answers_the_task(tiny_spec: BundleSpec) -> None:
    """How a model came to its answers is its own business; windows follow the model's prompt."""
    with_cloze(tiny_spec, "It was [MASK]").check_fits(tiny_spec.task)


@pytest.fixture
def tiny_spec(tiny_bundle: Path) -> BundleSpec:
    return BundleSpec.read(tiny_bundle / "bundle.json")


def with_cloze(spec: BundleSpec, prompt: str) -> BundleSpec:
    words = {"billing": ("a",), "technical": ("b",), "shipping": ("c",)}
    raw = spec.task.heads["queue"].model_dump() | {"cloze": {"prompt": prompt, "words": words}}
    heads = spec.task.heads | {"queue": HeadConfig.model_validate(raw)}
    return spec.model_copy(update={"task": spec.task.model_copy(update={"heads": heads})})
