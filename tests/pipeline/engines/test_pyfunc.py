"""A registered model in a notebook gives exactly the numbers of the nightly job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from pipeline.bundle import scoring_flow
from pipeline.engines.registry import Registry
from pipeline.rows import RawRow
from schemas.home import Home

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

# A model is registered and loaded through MLflow.
pytestmark = pytest.mark.slow

TEXTS = [
    ("refund please", "the card was charged twice"),
    ("", "the app is slow and the login is broken " * 8),
    ("late", ""),
    ("[SEP] order", "a parcel 你好 <b>broken</b>"),
]


@pytest.fixture(scope="module")
def model(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = Home(tmp_path_factory.mktemp("pyfunc"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        registry = Registry(home)
        run_id = registry.start_run("tiny", "r1", params={})
        version = registry.register("tiny", tiny_bundle, run_id=run_id)
        registry.promote("tiny", version, approver="ann", reason="")
        mlflow.set_tracking_uri(home.tracking_uri)
        return mlflow.pyfunc.load_model("models:/tiny@champion")


def frame(texts: list[tuple[Any, Any]] = TEXTS) -> pd.DataFrame:
    return pd.DataFrame(texts, columns=["subject", "body"])


def test_the_numbers_are_those_of_the_nightly_job(
    model: Any, tiny_bundle: Path, tiny_task: TaskConfig
) -> None:
    flow = scoring_flow(tiny_bundle, tiny_task)
    outcome = flow.score(
        RawRow("f", n, {"ticket_id": str(n), "subject": subject, "body": body}, b"")
        for n, (subject, body) in enumerate(TEXTS)
    )
    answered = model.predict(frame())
    assert len(outcome.scored) == len(answered) == 4
    for scored, (_, row) in zip(outcome.scored, answered.iterrows(), strict=True):
        queue, topics = scored.answers["queue"], scored.answers["topics"]
        assert row["queue"] == queue.labels[0]
        assert row["topics"] == list(topics.labels)
        assert row["queue_scores"] == queue.scores.astype(np.float32).tolist()
        assert row["topics_scores"] == topics.scores.astype(np.float32).tolist()
        assert row["queue_confidence"] == np.float32(queue.confidence)
        assert row["decision"] == scored.decision
        assert row["queue_window"] == queue.window
        assert row["topics_window"] == topics.window
        assert [(span["start"], span["end"]) for span in row["spans"]] == list(scored.spans)
        assert row["n_windows"] == len(scored.spans)
        assert row["text_hash"] == scored.prepared.text_hash


def test_rows_that_cannot_be_scored_say_why_and_the_others_are(model: Any) -> None:
    """FAILURES row 37: a null text in a notebook is an answer, not a traceback."""
    answered = model.predict(frame([("a", "late"), (None, None), ("", " "), (None, "slow")]))
    assert answered["decision"].isin(["auto", "review"]).tolist() == [True, False, False, True]
    assert answered["reason"].iloc[1].startswith("missing_text: ")
    assert answered["reason"].iloc[2].startswith("missing_text: ")
    assert answered["reason"].isna().tolist() == [True, False, False, True]
    alone = model.predict(frame([(None, "slow")]))
    assert alone["queue_scores"].iloc[0] == answered["queue_scores"].iloc[3]


def test_the_index_of_the_frame_is_kept(model: Any) -> None:
    """FAILURES row 10: answers belong to the rows they stand beside, whatever their labels."""
    indexed = frame().set_axis(["d", "b", "b", "a"])
    answered = model.predict(indexed)
    assert answered.index.tolist() == ["d", "b", "b", "a"]
    plain = model.predict(frame())
    assert answered["queue_scores"].tolist() == plain["queue_scores"].tolist()
    backwards = model.predict(frame().iloc[::-1])
    assert backwards.index.tolist() == [3, 2, 1, 0]
    assert backwards["queue_scores"].tolist()[::-1] == plain["queue_scores"].tolist()


def test_ids_are_taken_where_there_are_some(model: Any) -> None:
    answered = model.predict(frame().assign(ticket_id=["t9", "t8", "t7", "t6"]))
    assert answered["record_id"].tolist() == ["t9", "t8", "t7", "t6"]
    assert model.predict(frame())["record_id"].tolist() == ["0", "1", "2", "3"]


def test_a_frame_of_other_types_or_columns_is_refused_by_the_signature(model: Any) -> None:
    with pytest.raises(mlflow.exceptions.MlflowException, match="body"):
        model.predict(frame()[["subject"]])
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"(?i)incompatible input types"):
        model.predict(frame([("a", 3), ("b", 4)]))


def test_further_columns_do_not_matter(model: Any) -> None:
    wide = frame().assign(other=1.5, zeit=pd.Timestamp("2026-11-28"))
    assert model.predict(wide)["queue"].tolist() == model.predict(frame())["queue"].tolist()


def test_an_empty_frame_gives_an_empty_answer(model: Any) -> None:
    answered = model.predict(frame([]).astype("object"))
    assert len(answered) == 0


def test_a_frame_of_one_refused_row_has_every_column(model: Any) -> None:
    answered = model.predict(frame([("", "")]))
    assert answered.columns.tolist() == model.predict(frame()).columns.tolist()
