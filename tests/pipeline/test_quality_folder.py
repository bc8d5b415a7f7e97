from __future__ import annotations

import pytest

from pipeline.quality_folder import replaced_folder


def test_the_new_folder_takes_the_place_of_the_old_one(tmp_path):
    folder = tmp_path / "date=2026-11-28"
    for name in ("first", "second"):
        with replaced_folder(folder) as pages:
            (pages / name).touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["date=2026-11-28", "second"]


def test_after_an_error_the_old_one_is_still_there(tmp_path):
    folder = tmp_path / "date=2026-11-28"
    with replaced_folder(folder) as pages:
        (pages / "first").touch()
    with pytest.raises(FileNotFoundError), replaced_folder(folder) as pages:
        (pages / "nowhere" / "second").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["date=2026-11-28", "first"]
