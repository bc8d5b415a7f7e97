"""Which Ray a job joins, and what it says where it cannot."""

from __future__ import annotations

import pytest
import ray
from ray.exceptions import AuthenticationError

from jobs.ray_session import ray_address, ray_session
from schemas.errors import ArtifactError, ConfigError, TransientError


@pytest.mark.parametrize(
    ("configured", "variable", "expected"),
    [
        (None, None, "local"),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("10.0.0.2:6379", "10.0.0.1:6379", "10.0.0.2:6379"),
        ("local", "10.0.0.1:6379", "local"),
        ("auto", None, "auto"),
    ],
)
def test_the_task_file_wins_over_the_environment(monkeypatch, configured, variable, expected):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_address(configured) == expected


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "http://10.0.0.1:8265"])
def test_an_address_that_a_job_cannot_join_is_told_with_the_way_out(address):
    with pytest.raises(ConfigError, match="`ray job submit` starts it there"):
        ray_address(address)


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (ConnectionError("refused"), TransientError, "Ray at 10.0.0.1:6379 cannot be reached"),
        (RuntimeError("Version mismatch: Ray 2.9"), ArtifactError, "install the same on both"),
        (AuthenticationError("no token"), ConfigError, "RAY_AUTH_TOKEN"),
    ],
)
def test_each_way_of_not_getting_in_has_its_error(monkeypatch, raised, error, message):
    def refuse(**_):
        raise raised

    monkeypatch.setattr(ray, "init", refuse)
    with (
        pytest.raises(error, match=message),
        ray_session(cpus=0, address="10.0.0.1:6379"),
    ):
        pytest.fail("there is no such cluster")


def test_a_machine_too_busy_to_start_ray_is_tried_again(monkeypatch):
    def too_slow(**_):
        raise Exception("The current node timed out during startup")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", too_slow)
    with pytest.raises(TransientError, match=r"did not start.*timed out"), ray_session(cpus=0):
        pytest.fail("there is no session")


def test_a_mistake_of_ours_in_starting_ray_stays_a_bug(monkeypatch):
    def mistaken(**_):
        raise TypeError("unexpected keyword")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", mistaken)
    with pytest.raises(TypeError), ray_session(cpus=0):
        pytest.fail("there is no session")
