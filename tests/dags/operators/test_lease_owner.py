from __future__ import annotations

import json

import pytest

from dags.operators.lease import Lease


@pytest.fixture
def file(tmp_path):
    return tmp_path / "ray-jobs" / "x" / "lease.json"


def test_each_renewal_changes_the_file(file):
    lease = Lease(file, owner="a", lease_s=0)
    lease.take()
    contents = set()
    for _ in range(5):
        lease.renew()
        contents.add(file.read_bytes())
    assert len(contents) == 5
    assert [path.name for path in file.parent.iterdir()] == ["lease.json"]


def test_renewal_waits_for_a_sixth_of_the_lease(file):
    lease = Lease(file, owner="a", lease_s=600)
    lease.take()
    before = file.read_bytes()
    lease.renew()
    assert file.read_bytes() == before


def test_the_last_who_takes_it_has_it(file):
    early, late = Lease(file, owner="a", lease_s=0), Lease(file, owner="b", lease_s=0)
    early.take()
    late.take()
    early.renew()
    assert json.loads(file.read_bytes())["owner"] == "b"
    assert (early.is_own(), late.is_own()) == (False, True)


def test_end_is_seen_by_everybody_until_it_is_taken_again(file):
    early, late = Lease(file, owner="a", lease_s=0), Lease(file, owner="b", lease_s=0)
    early.take()
    early.end()
    assert late.is_ended()
    late.take()
    assert not early.is_ended()


@pytest.mark.parametrize("content", [None, "", "[1]", "{"])
def test_file_that_is_none_belongs_to_nobody(file, content):
    lease = Lease(file, owner="a", lease_s=0)
    if content is not None:
        file.parent.mkdir(parents=True)
        file.write_text(content)
    assert (lease.is_own(), lease.is_ended()) == (False, False)


def test_folder_that_cannot_be_written_is_a_warning(file, caplog):
    lease = Lease(file, owner="a", lease_s=0)
    lease.take()

    def fail(*, ended):
        raise OSError("disk is full")

    lease._write = fail
    lease.renew()
    assert "cannot be renewed: disk is full" in caplog.text
