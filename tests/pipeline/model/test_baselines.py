from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pipeline.heads import HeadSlice
from pipeline.model import baselines
from pipeline.model.baselines import measure_baselines
from pipeline.model.text_features import joined_texts, sampled, tfidf
from schemas.task import HeadConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.model.labelled import Example

QUEUE = HeadSlice("queue", HeadConfig(column="queue", labels=("pay", "crash", "ship")), 0)
TOPICS = HeadSlice(
    "topics", HeadConfig(kind="multi", column="topics", labels=("price", "quality")), 3
)
WORDS = ("invoice refund", "crash error", "parcel late")


def example(
    make_example: Callable[..., Example], number: int, queue: int, *, split: str = "train"
) -> Example:
    flags = (number % 2, 0)
    text = f"{WORDS[queue]} {'price' if number % 2 else ''} {number}"
    made = make_example(f"r{number}", queue=queue, topics=flags, split=split)
    return replace(made, texts=(text,))


@pytest.fixture
def splits(make_example: Callable[..., Example]) -> dict[str, list[Example]]:
    """Words decide; in training `crash` is the majority."""
    queues = [0, 1, 1, 2, 1]
    return {
        "train": [example(make_example, n, queues[n % 5]) for n in range(60)],
        "valid": [example(make_example, n, n % 3, split="valid") for n in range(100, 112)],
        "test": [example(make_example, n, n % 3, split="test") for n in range(200, 220)],
    }


def test_majority_and_linear_model_by_hand(splits: dict[str, list[Example]]) -> None:
    found = measure_baselines(splits, (QUEUE, TOPICS), seed=1)
    # 6 of 20 test records are `crash`: F1 of it 2 * 6 / 26, of the two others 0.
    assert found["queue"]["majority"] == {
        "accuracy": 0.3, "macro_f1": pytest.approx(12 / 26 / 3), "rows": 20, "train_rows": 60,
    }  # fmt: skip
    assert found["queue"]["tfidf_linear"] == {
        "accuracy": 1.0, "macro_f1": 1.0, "rows": 20, "train_rows": 60,
    }  # fmt: skip
    # Half of the records have the first topic: no majority, so none; the second is in none at all.
    assert found["topics"]["majority"]["accuracy"] == 0.75
    assert found["topics"]["majority"]["macro_f1"] == 0.0
    assert found["topics"]["tfidf_linear"]["accuracy"] == 1.0
    assert found["topics"]["tfidf_linear"]["macro_f1"] == 0.5
    assert measure_baselines(splits, (QUEUE, TOPICS), seed=1) == found


def test_aspects_have_a_model_each(splits: dict[str, list[Example]]) -> None:
    config = HeadConfig(
        kind="aspect", column="s", labels=("bad", "good"), aspects=("first", "second")
    )
    head = HeadSlice("s", config, 0)
    judged = {
        name: [replace(one, targets={"s": (int(str(one.targets["queue"])), 0)}) for one in examples]
        for name, examples in splits.items()
    }
    found = measure_baselines(judged, (head,), seed=1)["s"]
    assert found["tfidf_linear"]["accuracy"] == 1.0
    assert found["tfidf_linear"]["macro_f1"] == 1.0
    assert found["majority"]["accuracy"] == pytest.approx((0.3 + 1.0) / 2)


def test_unknown_labels_count_nowhere(
    make_example: Callable[..., Example], splits: dict[str, list[Example]]
) -> None:
    unknown = [
        replace(make_example(f"u{n}", queue=None, topics=(0, 0)), texts=("x",)) for n in range(9)
    ]
    more = {name: [*examples, *unknown] for name, examples in splits.items()}
    found = measure_baselines(more, (QUEUE,), seed=1)
    assert found["queue"]["majority"]["rows"] == 20
    assert found["queue"]["majority"]["train_rows"] == 60
    assert measure_baselines({**splits, "test": unknown}, (QUEUE,), seed=1) == {}
    assert measure_baselines({**splits, "train": []}, (QUEUE,), seed=1) == {}


def test_a_single_label_in_training_leaves_the_majority_alone(
    splits: dict[str, list[Example]],
) -> None:
    only = [one for one in splits["train"] if one.targets["queue"] == 0]
    found = measure_baselines({**splits, "train": only}, (QUEUE,), seed=1)
    assert list(found["queue"]) == ["majority"]


def test_c_is_not_chosen_on_what_is_measured(
    splits: dict[str, list[Example]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []
    fit = baselines._fit_and_predict

    def note(*data: object, c: float, seed: int) -> object:
        tried.append(c)
        return fit(*data, c=c, seed=seed)

    monkeypatch.setattr(baselines, "_fit_and_predict", note)
    found = measure_baselines({**splits, "test": []}, (QUEUE,), seed=1)
    assert tried == [1.0]
    assert found["queue"]["tfidf_linear"]["rows"] == 12
    tried.clear()
    measure_baselines(splits, (QUEUE,), seed=1)
    assert tried[:3] == [0.1, 1.0, 10.0]


def test_a_large_set_is_sampled(
    splits: dict[str, list[Example]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "MAX_ROWS", 30)
    found = measure_baselines(splits, (QUEUE,), seed=1)
    assert found["queue"]["tfidf_linear"]["train_rows"] == 30
    some = sampled(splits["train"], limit=30, seed=1)
    assert some == sampled(splits["train"], limit=30, seed=1)
    assert [one.record_id for one in some] == sorted(
        (one.record_id for one in some), key=lambda name: int(name[1:])
    )
    assert sampled(splits["train"], limit=60, seed=1) == splits["train"]


def test_features_suit_any_script(make_example: Callable[..., Example]) -> None:
    texts = ["!?", "退款", "a", "ไม่ดี", "🙂"]
    found = tfidf(len(texts)).fit_transform(texts)
    assert found.shape[0] == 5
    assert (found.getnnz(axis=1) > 0).all()
    long = replace(make_example("r"), texts=("subject", "x" * 9000))
    assert [len(text) for text in joined_texts([long])] == [5000]
