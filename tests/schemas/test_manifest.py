"""Documents are whole or absent; counters add up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.errors import ArtifactError
from schemas.fingerprint import canonical_json, digest_of, digest_of_file
from schemas.manifest import (
    Counters,
    ModelRef,
    PartitionManifest,
    Replay,
    Shard,
    write_atomically,
)

OLD = ModelRef(name="m", version="1", digest="old")
NEW = ModelRef(name="m", version="2", digest="new")


def test_a_document_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "model.json"
    OLD.write(path)
    assert ModelRef.read(path) == OLD
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """FAILURES row 8: readers see the old file or the new one, never a half."""
    path = tmp_path / "model.json"
    OLD.write(path)

    def fail(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "fsync" else Path, step, fail)
        with pytest.raises(OSError, match="no space left"):
            NEW.write(path)
    assert ModelRef.read(path) == OLD
    NEW.write(path)
    assert ModelRef.read(path) == NEW


def test_a_missing_document_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.json does not exist"):
        ModelRef.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content", [b"", b'{"name": "m", "version"', b'{"name": "m"}', b"[]", b"\xff"]
)
def test_a_torn_or_foreign_document_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.json is not a ModelRef"):
        ModelRef.read(path)


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    write_atomically(path, b'{"name": "m", "version": "1", "digest": "d", "more": 1}')
    with pytest.raises(ArtifactError, match="more"):
        ModelRef.read(path)


def test_counters_add_field_by_field_and_key_by_key() -> None:
    first = Counters(rows_read=3, rows_scored=2, quarantined_by_reason={"b": 1})
    second = Counters(rows_read=4, rows_quarantined=4, quarantined_by_reason={"a": 3, "b": 1})
    total = first + second
    assert (total.rows_read, total.rows_scored, total.rows_quarantined) == (7, 2, 4)
    assert list(total.quarantined_by_reason.items()) == [("a", 3), ("b", 2)]
    assert total == second + first
    assert sum([first, second], start=Counters()) == total


def test_stopped_and_warned_rules_add_up_as_well() -> None:
    first = Counters(warned={"lang:allowed": 1}, stopped={"age:max_value": 2})
    total = first + Counters(warned={"lang:allowed": 2}, stopped={"age:type": 1})
    assert total.warned == {"lang:allowed": 3}
    assert total.stopped == {"age:max_value": 2, "age:type": 1}


def shard(**changes: object) -> Shard:
    place = {"index": 0, "name": "a.csv", "path": "a.csv", "format": "csv", "start": 0, "stop": 9}
    return Shard.model_validate({**place, "first_row": 4, "rows": 3, **changes})


def test_a_restricted_shard_has_only_its_chosen_rows_to_do() -> None:
    assert shard().rows_to_do == 3
    assert shard(only_rows=(4, 6)).rows_to_do == 2
    assert shard(only_rows=()).rows_to_do == 0


def test_the_origin_of_a_replayed_partition_is_the_run_before_all_replays() -> None:
    plain = PartitionManifest(
        task="t", date="2026-11-28", run="r0", fingerprint="f", model=NEW, config_digest="c",
        cleaner_version="1", inputs=(), counters=Counters(), scores=(), quarantine=(),
    )  # fmt: skip
    first = Replay(
        base="r0", rows_replayed=2, rows_scored=1, config_digest="d", contract_version="v"
    )
    second = first.model_copy(update={"base": "r1"})
    twice = plain.model_copy(update={"run": "r2", "replays": (first, second)})
    assert plain.origin == "r0"
    assert twice.origin == "r0"
    assert PartitionManifest.model_validate_json(twice.model_dump_json()) == twice


def test_digests_do_not_depend_on_key_order_but_on_everything_else(tmp_path: Path) -> None:
    assert canonical_json({"b": 1, "a": "ü"}) == '{"a":"ü","b":1}'
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": "1"})
    big = tmp_path / "big"
    big.write_bytes(b"x" * (2**20 + 1))
    assert digest_of_file(big) != digest_of_file(_written(tmp_path / "less", b"x" * 2**20))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
