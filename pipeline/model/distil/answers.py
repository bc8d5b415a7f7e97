"""What teachers said of records, kept in the run's folder so that it is asked only once."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.staging import write_parquet
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.model.distil.teacher import Logits, Teacher
    from pipeline.model.labelled import Example
    from schemas.head import HeadConfig

log = logging.getLogger(__name__)
_KEY = b"nightmill.teacher"
_RECORDS_AT_ONCE = 2048  # after so many the answers are put on disk

_Kept = dict[tuple[str, str], "np.ndarray[tuple[int], np.dtype[np.float32]]"]


class AnswerFile:
    """Logits of one teacher, float32 and T not applied, as Parquet by record id.

    Of a record whose text has changed, or from a teacher of another digest or with other heads,
    nothing is taken over.
    """

    def __init__(self, path: Path, *, digest: str, heads: Mapping[str, HeadConfig]) -> None:
        scores = {name: list(head.score_names) for name, head in heads.items()}
        self._path = path
        self._width = sum(map(len, scores.values()))
        self._key = json.dumps({"digest": digest, "scores": scores}).encode()

    def ask(self, teacher: Teacher, examples: Sequence[Example]) -> Logits:
        """Logits `(N, L)` of `examples`; the teacher is asked only for those that are not kept."""
        kept = self._load()
        new = [example for example in examples if _name(example) not in kept]
        for start in range(0, len(new), _RECORDS_AT_ONCE):
            some = new[start : start + _RECORDS_AT_ONCE]
            kept |= zip(map(_name, some), teacher.logits(some), strict=True)
            self._save(kept)
            log.info(
                "%s: the teacher has answered %d of %d texts", self._path.stem,
                min(start + _RECORDS_AT_ONCE, len(new)), len(new),
            )  # fmt: skip
        return self._of(examples, kept)

    def read(self, examples: Sequence[Example]) -> Logits:
        """Logits `(N, L)` of `examples`, all of which were asked before.

        Raises:
            ArtifactError: one was not, or of another teacher.
        """
        return self._of(examples, self._load())

    def _of(self, examples: Sequence[Example], kept: _Kept) -> Logits:
        try:
            found = [kept[_name(example)] for example in examples]
        except KeyError as error:
            raise ArtifactError(
                f"{self._path}: no answer for record {error.args[0][0]}; remove the file and run "
                f"the step `finetune` again"
            ) from None
        return np.array(found, dtype=np.float32).reshape(len(examples), self._width)

    def _load(self) -> _Kept:
        if not self._path.exists():
            return {}
        table = pq.read_table(self._path)
        if (table.schema.metadata or {}).get(_KEY) != self._key:
            log.info("%s is of another teacher or other heads: asking anew", self._path.name)
            return {}
        logits = table["logits"].combine_chunks().values.to_numpy().reshape(-1, self._width)
        names = zip(table["record_id"].to_pylist(), table["text_hash"].to_pylist(), strict=True)
        return dict(zip(names, logits, strict=True))

    def _save(self, kept: _Kept) -> None:
        ids, hashes = zip(*kept, strict=True)
        flat = np.concatenate(list(kept.values())).astype(np.float32)
        table = pa.table(
            {
                "record_id": pa.array(ids, pa.string()),
                "text_hash": pa.array(hashes, pa.string()),
                "logits": pa.FixedSizeListArray.from_arrays(pa.array(flat), self._width),
            }
        ).replace_schema_metadata({_KEY: self._key})
        write_parquet(table, self._path)


def _name(example: Example) -> tuple[str, str]:
    return example.record_id, example.text_hash
