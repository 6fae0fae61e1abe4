"""Ids of several parts: no two lists of parts share one, and what was written before keeps its id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.composite import composite_id, conversation_id, parts_of

TEXTS = st.text("a~/\0:01", max_size=12)
CUTS = st.sets(st.integers(0, 12), max_size=3)


def cut(text: str, places: set[int]) -> list[str]:
    """The text in parts. Where it is cut at a separator, the separator is left out, as if it had come from joining."""
    parts, start = [], 0
    for place in sorted(place for place in places if place < len(text)):
        parts.append(text[start:place])
        start = place + 1
    return [*parts, text[start:]]


@given(TEXTS, TEXTS, CUTS, CUTS, st.sampled_from("/\0"))
def test_only_equal_parts_give_equal_ids(
    text: str, other: str, cuts: set[int], other_cuts: set[int], separator: str
) -> None:
    """One text cut in two ways, too: glued together again without care, both would be the same."""
    text = "".join(separator if place in cuts | other_cuts else letter for place, letter in enumerate(text))
    lists = [cut(text, cuts), cut(text, other_cuts), cut(other, cuts)]
    ids = [composite_id(*parts, separator=separator) for parts in lists]
    assert [one == another for one in ids for another in ids] == [
        one == another for one in lists for another in lists
    ]
    assert [parts_of(one, separator) for one in ids] == lists


@given(TEXTS, CUTS, CUTS)
def test_only_equal_pairs_give_equal_conversations(text: str, cuts: set[int], other_cuts: set[int]) -> None:
    text = "".join(":" if place in cuts | other_cuts else letter for place, letter in enumerate(text))
    (mine, *_, last), (yours, *_, end) = (["", *cut(text, places)] for places in (cuts, other_cuts))
    for one, other in (((mine, last), (yours, end)), ((text, last), (last, text)), ((text, ""), ("", text))):
        assert (conversation_id(*one) == conversation_id(*other)) == (one == other)


@pytest.mark.parametrize(
    ("made", "before"),
    [
        (composite_id("0191-abcd"), "0191-abcd"),
        (composite_id("0191-abcd", "reply"), "0191-abcd/reply"),
        (composite_id("", "turn", separator="\0"), "\0turn"),
        (composite_id("monday/2", "t1", separator="\0"), "monday/2\0t1"),
        (conversation_id("xiao", "a:b"), "4:xiao:a:b"),
    ],
)
def test_ids_that_lie_in_people_s_databases_stay(made: str, before: str) -> None:
    assert made == before
