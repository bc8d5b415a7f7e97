from __future__ import annotations

import pytest

from dags.operators.ray_address import RayAddress
from dags.operators.ray_cluster import ClusterRefusesError, RayCluster, RayJob


@pytest.mark.parametrize("name", ["RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"])
def test_variable_that_would_overrule_the_address_is_refused(monkeypatch, name):
    monkeypatch.setenv(name, "http://elsewhere:8265")
    cluster = RayCluster(RayAddress.of_url("http://anna:s3cret@head:8265"))
    with pytest.raises(
        ClusterRefusesError, match=rf"^{name} .* Ray at http://\*\*\*@head:8265; unset"
    ):
        cluster.look("x")


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("PENDING", False),
        ("RUNNING", False),
        ("STOPPED", True),
        ("FAILED", True),
        ("SUCCEEDED", True),
    ],
)
def test_which_states_are_the_last(status, ended):
    assert RayJob(status).ended is ended
