from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pipeline.model.backbone import load_encoder
from pipeline.model.distil.picked_layers import pick_layers
from pipeline.model.prune.choose import without_layers
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    MakeEncoder = Callable[[str], nn.Module]


@pytest.fixture
def teacher_of(family_encoder: Callable[..., nn.Module]) -> MakeEncoder:
    """A teacher of four layers, whose attention does not reach from end to end of a text."""
    local: dict[str, dict[str, Any]] = {
        "modernbert": {"local_attention": 4}, "longformer": {"attention_window": [4, 8, 12, 16]},
    }  # fmt: skip

    def make(family: str) -> nn.Module:
        return family_encoder(
            family, num_hidden_layers=4, initializer_range=0.5, **local.get(family, {})
        )

    return make


def test_a_student_answers_as_the_picked_layers_and_is_found_again(
    family: str, teacher_of: MakeEncoder, tmp_path: Path
) -> None:
    teacher = teacher_of(family)
    student = pick_layers(teacher, (0, 3))
    assert student.config.num_hidden_layers == 2
    theirs = teacher.state_dict()
    for name, weight in student.state_dict().items():
        of_teacher = re.sub(r"\b(layers?)\.1\.", r"\1.3.", name)
        assert torch.equal(weight, theirs[of_teacher]), name
    student.save_pretrained(tmp_path)
    again = load_encoder(f"path:{tmp_path}", dropout=0.0).eval()
    ids = torch.arange(5, 15)[None]
    with torch.no_grad(), without_layers(teacher, [1, 2]):
        wanted = teacher(input_ids=ids)[0]
        for each in (student, again):
            torch.testing.assert_close(each(input_ids=ids)[0], wanted)


def test_all_layers_answer_as_the_teacher(teacher_of: MakeEncoder) -> None:
    teacher = teacher_of("bert")
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        got = pick_layers(teacher, range(4))(input_ids=ids)[0]
        assert torch.equal(got, teacher(input_ids=ids)[0])


def test_what_is_set_by_layer_goes_with_its_layer(teacher_of: MakeEncoder) -> None:
    student = pick_layers(teacher_of("longformer"), (0, 2))
    assert student.config.attention_window == [4, 12]


def test_a_layer_beyond_the_last_is_named(teacher_of: MakeEncoder) -> None:
    with pytest.raises(ConfigError, match=r"distil.student.layers: got 4, expected 0 to 3"):
        pick_layers(teacher_of("bert"), (0, 4))


def test_a_layer_that_is_made_otherwise_cannot_be_the_first(teacher_of: MakeEncoder) -> None:
    with pytest.raises(ConfigError, match=r"\[1, 3\].*try to begin with layer 0"):
        pick_layers(teacher_of("modernbert"), (1, 3))
