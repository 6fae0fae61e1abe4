"""A sample of the mutations that `bench/fuzz.py` tries."""

from pathlib import Path

import pytest

from tests.fuzz.parsers import PARSERS, failures

SAMPLE = 100


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_raises_only_what_it_declares(name: str, tmp_path: Path) -> None:
    found = list(failures(name, SAMPLE, 7, tmp_path))
    assert not found, [(why, data[:200]) for data, why in found[:3]]
