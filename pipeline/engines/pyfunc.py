"""A bundle as an MLflow pyfunc model: a data frame in, the nightly job's own numbers out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pandas as pd

from pipeline.bundle import load_spec, scoring_flow
from pipeline.rows import RawRow, Rejected

if TYPE_CHECKING:
    from pipeline.flow import Scored


class PyfuncModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Answers for every row of a data frame with the task's text columns, in its order."""

    def load_context(self, context: Any) -> None:  # MLflow calls it by keyword
        """Builds the very flow that scores at night."""
        folder = Path(context.artifacts["bundle"])
        self._task = load_spec(folder).task
        self._flow = scoring_flow(folder, self._task)

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """One row out for each row in; a row that is not scored has its `reason`."""
        outcome = self._flow.score(
            RawRow("frame", number, values, json.dumps(values, default=str).encode())
            for number, values in enumerate(self._values(model_input))
        )
        by_row: dict[int, dict[str, Any]] = {
            scored.prepared.record.source_row: self._answer(scored) for scored in outcome.scored
        }
        by_row |= {rejected.source_row: _refusal(rejected) for rejected in outcome.rejected}
        rows = [by_row[number] for number in range(len(model_input))]
        return pd.DataFrame(rows, index=model_input.index, columns=self._columns())

    def _columns(self) -> list[str]:
        """All columns, also where no row has an answer to fill them."""
        parts = ("", "_confidence", "_scores", "_window")
        scope = ("_scope", "_outside")
        heads = [
            f"{name}{part}"
            for name, head in self._task.heads.items()
            for part in (parts if head.outside is None else parts + scope)
        ]
        about = ["decision", "lang", "n_windows", "spans", "truncated", "text_hash", "reason"]
        return ["record_id", *heads, *about]

    def _values(self, frame: pd.DataFrame) -> list[dict[str, Any]]:
        wanted = frame.astype(object).where(frame.notna(), None)
        records: list[dict[str, Any]] = [
            {str(name): value for name, value in row.items()}
            for row in wanted.to_dict(orient="records")
        ]
        name = self._task.data.id_column
        if name:  # a notebook has no use for ids; the row number stands in for a missing one
            for number, record in enumerate(records):
                record.setdefault(name, str(number))
        return records

    def _answer(self, scored: Scored) -> dict[str, Any]:
        row: dict[str, Any] = {"record_id": scored.prepared.record.record_id}
        for name, head in self._task.heads.items():
            answer = scored.answers[name]
            row[name] = answer.labels[0] if head.kind == "single" else list(answer.labels)
            row[f"{name}_confidence"] = np.float32(answer.confidence)
            row[f"{name}_scores"] = answer.scores.astype(np.float32).tolist()
            row[f"{name}_window"] = answer.window
            if head.outside is not None:
                row[f"{name}_scope"] = None if answer.scope is None else np.float32(answer.scope)
                row[f"{name}_outside"] = answer.outside
        return row | {
            "decision": scored.decision,
            "lang": scored.prepared.lang,
            "n_windows": len(scored.spans),
            "spans": [{"start": start, "end": end} for start, end in scored.spans],
            "truncated": scored.truncated,
            "text_hash": scored.prepared.text_hash,
            "reason": None,
        }


def _refusal(rejected: Rejected) -> dict[str, Any]:
    return {
        "record_id": rejected.record_id,
        "decision": "rejected",
        "reason": f"{rejected.reason.value}: {rejected.detail}",
    }
