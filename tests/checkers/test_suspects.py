"""Who may have written over a lost message: the sentence names a writer only where one can have done it."""

from __future__ import annotations

import pytest

from .history_script import Script


def written() -> Script:
    script = Script()
    script.append(9, "other")
    script.append(1)
    script.append(1)
    script.read(2, 1, 2)
    return script


def sentence(script: Script) -> str:
    anomaly = script.only()
    assert anomaly.name == "lost-update"
    return anomaly.sentence


@pytest.mark.parametrize("kept", [1, 2])
def test_nobody_else_wrote(kept: int) -> None:
    script = written()
    script.read(2, kept)
    assert "meanwhile" not in sentence(script)


def test_the_other_wrote_after_the_read() -> None:
    script = written()
    script.read(2, 1)
    script.append(3)
    assert "meanwhile" not in sentence(script)


def test_the_other_was_done_before_the_write_began() -> None:
    script = Script()
    script.append(9, "other")
    script.append(3)
    script.append(1)
    script.read(2, 1)
    assert "meanwhile" not in sentence(script)


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_the_other_overlapped(outcome: str) -> None:
    script = Script()
    script.append(9, "other")
    script.begin_each(3, 1)
    getattr(script, outcome)(3)
    script.ok(1)
    script.read(2, 1)
    assert "process 3 wrote to the session meanwhile (event 2)" in sentence(script)


def test_the_other_wrote_back_a_list_from_before_the_message() -> None:
    script = written()
    base = script.read(3, 1, 2)
    script.append(1)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 2, 4)
    assert f"meanwhile (event 12), from the list it had read at event {base}" in sentence(script)


def test_the_other_wrote_back_a_list_that_had_the_message() -> None:
    script = written()
    base = script.read(3, 1, 2)
    script.append(3, operation="save", base=base)
    script.read(2, 1, 3)
    assert "meanwhile" not in sentence(script)


def test_the_last_suspect_is_named() -> None:
    script = written()
    script.append(3)
    script.append(4)
    script.read(2, 1, 3, 4)
    assert "process 4" in sentence(script)
