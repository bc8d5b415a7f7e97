from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from schemas.errors import ArtifactError
from schemas.pretrain import PretrainConfig
from schemas.pretraining import Prepared, Pretrained, PretrainingRun

if TYPE_CHECKING:
    from schemas.home import Home
    from schemas.task import TaskConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_tokenizer": {}}, "train_tokenizer needs from_scratch"),
        ({"new_tokens": 5, "from_scratch": {}}, "new_tokens extends a pretrained vocabulary"),
        ({"from_scratch": {"hidden_size": 10, "heads": 4}}, "hidden_size 10 is no multiple of"),
        ({"objective": "simcse", "workers": 2}, "simcse does not go with workers over 1"),
        (
            {"objective": "simcse", "next_sentence": True, "batch_size": 1},
            "simcse does not go with next_sentence, batch_size 1",
        ),
        ({"mask_fraction": 1.0}, "less than 1"),
        ({"epoch": 1}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PretrainConfig.model_validate(settings)


def test_a_task_that_says_nothing_of_it_has_the_defaults(tiny_task: TaskConfig) -> None:
    assert tiny_task.pretrain == PretrainConfig()
    assert tiny_task.pretrain.mask_fraction == 0.15
    assert tiny_task.pretrain.new_tokens == 0


def test_a_run_is_found_by_name_and_by_what_made_it(home: Home) -> None:
    place = PretrainingRun(home, "tiny", "trial")
    assert place.pretrained("f" * 64) is None
    done = Pretrained(
        run="trial", fingerprint="f" * 64, address=place.address, mlflow_run_id="r",
        data_digest="d", texts={"train": 2}, rejected={}, after={"loss": 1.0}, best_epoch=1,
        prepared=Prepared(before={"loss": 2.0}, pieces_per_word=(1.0, 1.0),
                          unknown_words=(0.0, 0.0), sequences=1, tokens=9),
        seconds=0.5,
    )  # fmt: skip
    done.write(place.done)
    assert place.pretrained("f" * 64) == done
    assert done.address == f"path:{home.root}/pretrained/tiny/trial/model"
    with pytest.raises(ArtifactError, match="'trial' exists with other data or settings"):
        place.pretrained("0" * 64)
