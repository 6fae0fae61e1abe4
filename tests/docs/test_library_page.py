"""The page about the library names every option of `open_store`, every error and every capability."""

import inspect
from pathlib import Path

import pytest

from recollect import errors, store

PAGE = (Path(__file__).parent.parent.parent / "docs" / "library.md").read_text()

ERRORS = [
    name
    for name, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, errors.RecollectError) and each is not errors.RecollectError
]
CAPABILITIES = [base.__name__ for base in store.Store.__mro__ if base.__module__ == store.__name__]


@pytest.mark.parametrize("name", [*store.OpenOptions.__annotations__, *ERRORS])
def test_a_row_of_a_table(name: str) -> None:
    assert f"\n| `{name}`" in PAGE


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_capability(name: str) -> None:
    assert f"`{name}`" in PAGE
