from __future__ import annotations

import shutil

from pipeline.engines.champion_tokenizer import champion_tokenizer


def with_model(task, model):
    return task.model_copy(update={"score": task.score.model_copy(update={"model": model})})


def test_the_tokenizer_of_the_model_that_scores(home, tiny_task, tiny_bundle):
    task = with_model(tiny_task, f"path:{tiny_bundle}")
    tokenizer = champion_tokenizer(task, home)
    assert tokenizer is not None
    assert "[SEP]" in tokenizer.special_tokens


def test_a_home_without_models_has_none_and_stays_as_it_is(home, tiny_task):
    assert champion_tokenizer(tiny_task, home) is None
    assert list(home.root.iterdir()) == []


def test_a_damaged_bundle_is_as_good_as_none(home, tiny_task, tiny_bundle, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    (folder / "tokenizer.json").write_text("{")
    assert champion_tokenizer(with_model(tiny_task, f"path:{folder}"), home) is None
    assert champion_tokenizer(with_model(tiny_task, "path:/nowhere"), home) is None
