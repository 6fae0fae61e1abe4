"""Tests that share a daemon, a browser or loop devices are kept on one worker."""

import pytest


@pytest.mark.xdist_group("groups")
def test_a_group_is_known_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("only with --dist loadgroup")
    assert request.node.nodeid.endswith("@groups"), "each worker starts a daemon and a browser of its own"
