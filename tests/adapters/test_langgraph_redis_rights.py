"""A Redis user under ACL: what it may not do is said when the saver is opened, before anything is written."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from recollect import CannotOpen
from recollect.adapters.langgraph import RecollectSaver
from recollect.adapters.langgraph.shelf_redis_opening import COMMANDS
from recollect.verify.engines import Engine
from tests.stores.redis_places import BUILDS, hands_on, started

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
HANDSHAKE = {"AUTH", "HELLO", "SELECT", "CLIENT"}
"""Sent by the driver when it connects."""
BY_HANDS = {"ACL", "CONFIG", "SCRIPT", "INFO", "KEYS"}


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def _user(engine: Engine, hands: Any, *rules: str) -> tuple[str, str]:
    """A new user with these rules: its name, which is its prefix too, and its address."""
    name = f"test-{uuid.uuid4().hex}"
    hands.execute_command(
        "ACL", "SETUSER", name, "on", ">secret", *[rule.replace("<prefix>", name) for rule in rules]
    )
    url = engine.endpoint.socket_url
    assert url is not None
    return name, f"unix://{name}:secret@{url.partition('@')[2]}&prefix={name}"


def _everything(url: str, folder: Path) -> None:
    """Every call of a saver, on every way that its scripts have."""
    with RecollectSaver(url, witness=folder / uuid.uuid4().hex) as saver:
        config = THREAD
        for step in range(3):
            checkpoint: Any = empty_checkpoint()
            values = {"a": step, "b": "x" * 100}
            checkpoint |= {"channel_values": values, "channel_versions": {"a": step, "b": 0}}
            config = saver.put(
                config, checkpoint, {"run_id": str(step)}, {"a": step, **({} if step else {"b": 0})}
            )
            saver.put_writes(config, [("c", "said"), ("__error__", "no")], "task")
        assert saver.get_tuple(THREAD) is not None
        early: Any = {
            "configurable": {**THREAD["configurable"], "checkpoint_id": "of a step that never came"}
        }
        saver.put_writes(early, [("c", "said")], "task")
        assert len(list(saver.list(None, limit=2))) == 2
        assert len(list(saver.list(THREAD))) == 3
        saver.get_delta_channel_history(config=config, channels=["a", "d"])
        for _ in range(2):
            saver.copy_thread("t", "copy")
        saver.delete_for_runs(["0"])
        saver.prune(["copy"])
        for thread in ("t", "copy"):
            saver.delete_thread(thread)


def test_the_engine_saw_no_other_command(engine: Engine, tmp_path: Path) -> None:
    """Counted by the engine itself, commands of scripts included."""
    with hands_on(engine) as hands:
        _, url = _user(engine, hands, "~*", "+@all")
        hands.script_flush()
        hands.config_resetstat()
        _everything(url, tmp_path)
        counted = {
            name.removeprefix("cmdstat_").replace("|", " ").upper() for name in hands.info("commandstats")
        }
    counted = {name for name in counted if name.split(" ")[0] not in HANDSHAKE | BY_HANDS - {"SCRIPT"}}
    assert {name.replace("SCRIPT FLUSH", "SCRIPT LOAD") for name in counted} - {"SCRIPT"} <= COMMANDS


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_missing_command_is_named_at_open(engine: Engine, command: str) -> None:
    right = command.lower().replace(" ", "|")
    with hands_on(engine) as hands:
        name, url = _user(engine, hands, "~*", "+@all", f"-{right.partition('|')[0]}")
        with pytest.raises(CannotOpen) as told:
            RecollectSaver(url)
        assert f"its user may not run {command}, which the saver needs" in str(told.value)
        assert str(told.value).endswith(f"ACL SETUSER … +{right}")
        assert [key for key in hands.keys(f"{name}:*") if b":rights:" not in key] == []


def test_keys_that_may_not_be_used_are_named_at_open(engine: Engine) -> None:
    with hands_on(engine) as hands:
        name, url = _user(engine, hands, "~somewhere:*", "+@all")
        with pytest.raises(CannotOpen, match=rf"use the keys {name}:langgraph:\*.*~{name}:langgraph:\*$"):
            RecollectSaver(url)


def test_a_user_with_no_more_than_is_documented_does_everything(engine: Engine, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "adapters" / "langgraph.md").read_text()
    documented = re.search(r"needs `~<prefix>:langgraph:\*` and `([^`]+)`", page)
    assert documented is not None
    rules = documented[1].split()
    assert {rule[1:].upper().replace("|", " ") for rule in rules} == COMMANDS
    with hands_on(engine) as hands:
        name, url = _user(engine, hands, "~<prefix>:langgraph:*", *rules)
        hands.script_flush()
        _everything(url, tmp_path)
        assert hands.keys(f"{name}:*:rights:*") == []
