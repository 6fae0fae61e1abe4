"""How many histories the tester-testing tests go through: a sample by default, all with `--full-checkers`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-checkers",
        action="store_true",
        default=False,
        help="10,000 valid histories and 1,000 planted variants of each anomaly instead of a sample",
    )


@pytest.fixture(scope="session")
def is_full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full-checkers", default=False))
