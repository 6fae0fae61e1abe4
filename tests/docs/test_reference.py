"""The reference is made from the docstrings, and has every public name."""

import itertools

import recollect
from tests.docs import reference_page

OF_THE_KIT = {"interleaved"}
"""Documented with the kit, in docs/interleavings.md."""


def test_the_reference_is_what_the_docstrings_say() -> None:
    assert reference_page.PAGE.read_text() == reference_page.page(), "run python -m tests.docs.reference_page"


def test_every_public_name_is_in_it() -> None:
    assert reference_page.named() - {"Options"} == set(recollect.__all__) - OF_THE_KIT


def test_everything_in_it_has_a_docstring() -> None:
    lines = [line for line in reference_page.page().splitlines() if line.strip()]
    bare = [
        one
        for one, following in itertools.pairwise(lines)
        if one.startswith(("### ", "**`")) and following.startswith(("#", "**`"))
    ]
    assert bare == []
