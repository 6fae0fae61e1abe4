"""Tests that share a daemon, a browser, loop devices or the engine of their file are kept on one worker."""

import pytest


@pytest.fixture(scope="module")
def shared() -> None:
    """As an engine that all tests of a file use."""


@pytest.mark.xdist_group("groups")
def test_a_group_is_known_to_the_scheduler(request: pytest.FixtureRequest) -> None:
    assert _group(request) == "groups", "each worker starts a daemon and a browser of its own"


def test_what_shares_a_fixture_of_its_file_is_a_group(shared: None, request: pytest.FixtureRequest) -> None:
    assert _group(request) == "tidy/test_groups", "each worker starts an engine of its own for every file"


def test_what_shares_nothing_is_none(request: pytest.FixtureRequest) -> None:
    assert _group(request) == ""


def _group(request: pytest.FixtureRequest) -> str:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("only with --dist loadgroup")
    nodeid: str = request.node.nodeid
    return nodeid.partition("@")[2]
