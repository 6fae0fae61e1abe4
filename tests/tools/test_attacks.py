"""Each attack runs, and finds the mistake it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tools.attack import __main__ as attacks
from tools.attack import cancellation, fuzz, model, stores
from tools.attack.assault import Assault

from recollect.stores.sqlite.store import SqliteStore


@pytest.fixture
def sqlite_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stores, model, cancellation):
        monkeypatch.setattr(module, "ENGINES", {"sqlite": None})


def test_every_attack_has_a_module_and_a_line() -> None:
    text = Path(stores.__file__).with_name("README.md").read_text()
    for name in attacks.ATTACKS:
        assert f"python -m tools.attack {name} " in text


@pytest.mark.usefixtures("sqlite_only")
@pytest.mark.parametrize("attack", [model, cancellation])
def test_our_store_holds(attack: Any) -> None:
    assault = Assault(60.0, seed=1, limit=60)
    attack.attack(assault)
    assert assault.findings == []
    assert sum(assault.counts.values()) >= 60


@pytest.mark.usefixtures("sqlite_only")
def test_a_store_that_forgets_turn_ids_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = SqliteStore.append

    async def forgetful(self: SqliteStore, session: str, messages: Any, **options: Any) -> Any:
        return await append(self, session, messages, **{**options, "turn": None})

    monkeypatch.setattr(SqliteStore, "append", forgetful)
    for attack in (model, cancellation):
        assault = Assault(60.0, seed=1, limit=300)
        attack.attack(assault)
        assert assault.findings, attack.__name__


@pytest.mark.usefixtures("sqlite_only")
def test_a_store_that_loses_a_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    history = SqliteStore.history

    async def short(self: SqliteStore, session: str, **options: Any) -> Any:
        return (await history(self, session, **options))[1:]

    monkeypatch.setattr(SqliteStore, "history", short)
    assault = Assault(60.0, seed=1, limit=60)
    cancellation.attack(assault)
    assert any("missing" in finding for finding in assault.findings)


def test_a_parser_that_lets_an_error_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assault = Assault(30.0, seed=1, limit=200)
    fuzz.attack(assault)
    assert assault.findings == []
    monkeypatch.setattr(
        fuzz, "parsers", lambda folder: {"careless": (b"[1, 2]", lambda raw: int(raw[:1]), ())}
    )
    careless = Assault(30.0, seed=1, limit=200)
    fuzz.attack(careless)
    assert careless.findings
