from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    LongformerConfig,
    ModernBertConfig,
    MPNetConfig,
)

from pipeline.model.backbone import load_encoder
from pipeline.model.distil.picked_layers import pick_layers
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2,
    "intermediate_size": 8, "max_position_embeddings": 40, "initializer_range": 0.5,
}  # fmt: skip
CONFIGS = {
    "bert": BertConfig(**SIZES),
    "mpnet": MPNetConfig(**SIZES),
    "distilbert": DistilBertConfig(vocab_size=30, dim=8, n_layers=4, n_heads=2, hidden_dim=8),
    "longformer": LongformerConfig(**SIZES, pad_token_id=1, attention_window=[4, 8, 12, 16]),
    "modernbert": ModernBertConfig(
        **SIZES, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3,
        local_attention=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", CONFIGS)
def test_a_student_has_the_picked_layers_weights_and_is_found_again(
    family: str, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    teacher = AutoModel.from_config(CONFIGS[family]).eval()
    student = pick_layers(teacher, (0, 2))
    assert student.config.num_hidden_layers == 2
    theirs = teacher.state_dict()
    for name, weight in student.state_dict().items():
        assert torch.equal(weight, theirs[name.replace("layer.1.", "layer.2.").replace("layers.1.", "layers.2.")]), name  # fmt: skip # noqa: E501
    student.save_pretrained(tmp_path)
    again = load_encoder(f"path:{tmp_path}", dropout=0.0).eval()
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        got, wanted = again(input_ids=ids)[0], student(input_ids=ids)[0]
    torch.testing.assert_close(got, wanted)


def test_all_layers_answer_as_the_teacher() -> None:
    torch.manual_seed(3)
    teacher = AutoModel.from_config(CONFIGS["bert"]).eval()
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        got = pick_layers(teacher, range(4))(input_ids=ids)[0]
        assert torch.equal(got, teacher(input_ids=ids)[0])


def test_layers_by_name_of_what_is_set_by_layer() -> None:
    student = pick_layers(AutoModel.from_config(CONFIGS["longformer"]), (0, 2))
    assert student.config.attention_window == [4, 12]


def test_a_layer_beyond_the_last_is_named() -> None:
    with pytest.raises(ConfigError, match=r"distil.student.layers: got 4, expected 0 to 3"):
        pick_layers(AutoModel.from_config(CONFIGS["bert"]), (0, 4))


def test_a_layer_that_is_made_otherwise_cannot_be_the_first() -> None:
    with pytest.raises(ConfigError, match=r"\[1, 3\].*try to begin with layer 0"):
        pick_layers(AutoModel.from_config(CONFIGS["modernbert"]), (1, 3))
