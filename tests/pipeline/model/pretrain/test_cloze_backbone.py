"""What `nightmill pretrain` leaves has the masked-language head that cloze heads answer by."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pipeline.heads import head_slices
from pipeline.model.checkpoint import new_classifier
from pipeline.model.pretrain.preparing import prepare, save_finished
from pipeline.model.pretrain.starting import reload
from schemas.errors import ConfigError
from schemas.pretraining import PretrainingRun
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.model.network import Classifier
    from pipeline.model.pretrain.corpus import Corpus
    from schemas.home import Home
    from schemas.task import TaskConfig

HEADS = head_slices(
    {
        "mood": HeadConfig.model_validate(
            {"column": "m", "labels": ["no", "yes"],
             "cloze": {"prompt": "it is [MASK]", "words": {"no": ["late"], "yes": ["good"]}}}
        )
    }
)  # fmt: skip


@pytest.fixture
def pretrained(
    pretrain_task: Callable[..., TaskConfig], corpus: Corpus, tiny_tokenizer_path: Path, home: Home
) -> Callable[..., tuple[Any, Classifier]]:
    """Leaves a finished run, not trained; its model and a classifier made of its address."""

    def make(**changes: Any) -> tuple[Any, Classifier]:
        task, place = pretrain_task(**changes), PretrainingRun(home, "tiny", "trial")
        place.folder.mkdir(parents=True)
        shutil.copyfile(tiny_tokenizer_path, place.source_tokenizer)
        prepare(task, corpus, place)
        model = reload(str(place.start), task.pretrain)
        save_finished(model, place)
        train = task.train.model_copy(update={"backbone": place.address})
        return model, new_classifier(train, HEADS)

    return make


@pytest.mark.parametrize("changes", [{}, {"next_sentence": True}], ids=["mlm", "pairs"])
def test_a_pretrained_backbone_answers_cloze_heads(
    changes: dict[str, Any], pretrained: Callable[..., tuple[Any, Classifier]]
) -> None:
    model, classifier = pretrained(**changes)
    assert classifier.cloze is not None
    transform = model.cls.predictions.transform
    assert torch.equal(classifier.cloze.dense.weight, transform.dense.weight)
    assert torch.equal(classifier.cloze.norm.bias, transform.LayerNorm.bias)
    assert classifier.cloze.words.weight.shape == (2, 32)


def test_a_backbone_that_learned_texts_as_wholes_has_no_head(
    pretrained: Callable[..., tuple[Any, Classifier]],
) -> None:
    with pytest.raises(ConfigError, match="came without its masked-language head"):
        pretrained(objective="simcse")
