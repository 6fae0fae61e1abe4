"""Programs as people write them."""

from __future__ import annotations

import pytest

from recollect.verify.explore.interleavings.program import BadProgram, ClientsProgram, programs, spans
from recollect.verify.explore.interleavings.store_past import StorePast

EVERYTHING = ("forget", "context", "batches", "turn", "expect", "replace")


@pytest.mark.parametrize("text", ["a | a", "a1 r1 | a r", "9+ a | a", "t", "i | i | i", "c x f", "2+ p | r"])
def test_a_program_reads_as_it_is_written(text: str) -> None:
    assert str(ClientsProgram.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a | z", "'z'"),
        ("a | ", "no operation"),
        ("", "no operation"),
        ("x9+ a", "'x9'"),
        ("0+ a", "'0'"),
        ("101+ a", "'101'"),
        ("a10 | a", "'a10'"),
        ("a " * 13, "13 operations"),
        ("a|" * 8 + "a", "9 clients"),
        ("²+ a", "'²'"),
    ],
)
def test_what_is_no_program_is_refused_with_the_part(text: str, part: str) -> None:
    with pytest.raises(BadProgram, match=part):
        ClientsProgram.parse(text)


def test_programs_are_chosen_by_what_a_target_can_do() -> None:
    letters = {op.letter for program in programs(EVERYTHING) for ops in program.clients for op in ops}
    assert letters == set("atricxpf")
    assert {op.letter for program in programs(()) for ops in program.clients for op in ops} == set("ar")
    whole = {
        op.letter for program in programs(("whole-list", "batches")) for ops in program.clients for op in ops
    }
    assert whole == set("sr")


@pytest.mark.parametrize("cancel", [False, True])
def test_every_chosen_program_can_be_run(cancel: bool) -> None:
    for abilities in ((), EVERYTHING, ("whole-list",)):
        found = programs(abilities, cancel=cancel)
        assert found
        assert all(program.lacks(abilities) is None for program in found)


def test_smaller_programs_have_one_operation_less() -> None:
    found = {str(program) for program in ClientsProgram.parse("2+ a r | f").smaller()}
    assert found == {"a r | f", "2+ r | f", "2+ a | f", "2+ a r"}
    assert list(ClientsProgram.parse("a").smaller()) == []


def test_messages_in_a_few_words() -> None:
    assert spans([0, 1, 2, 4, 6, 7]) == "m0–m2 m4 m6 m7"


def test_what_has_met_before_is_nothing_new() -> None:
    past = StorePast()
    for text in ("a | a", "r r | a", "t | r"):
        past.did(ClientsProgram.parse(text))
    assert past.knows(ClientsProgram.parse("r | a r"))
    assert past.knows(ClientsProgram.parse("a1 r1 | a r"))
    assert past.knows(ClientsProgram.parse("t1 | t"))
    for text in ("t | t", "t | a", "1+ a | a", "a | f"):
        assert not past.knows(ClientsProgram.parse(text)), text


@pytest.mark.parametrize(
    ("text", "twins"),
    [
        ("a | a", [(), (0,)]),
        ("9+ a | a", [(), (0,)]),
        ("a | r | a", [(), (), (0,)]),
        ("a | a | a", [(), (0,), (0, 1)]),
        ("a r | a", [(), ()]),
        ("a1 r1 | a r", [(), (0,)]),
        ("a1 r | a r1", [(), (0,)]),
        ("1+ a1 r1 | a r", [(), ()]),
        ("a1 r1 | r a", [(), ()]),
        ("a2 | a", [(), ()]),
        ("a1 | a | a", [(), (), (1,)]),
    ],
)
def test_clients_that_do_the_same_are_twins(text: str, twins: list[tuple[int, ...]]) -> None:
    program = ClientsProgram.parse(text)
    assert [program.twins(number) for number in range(len(program.clients))] == twins
