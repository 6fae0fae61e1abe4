"""What only Redis does to a saver."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from recollect import OutcomeUnknown, Unreadable
from recollect.adapters import carrying
from recollect.adapters.langgraph import RecollectSaver
from recollect.verify.engines import Engine
from tests.stores.redis_places import BUILDS, address, hands_on, started

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


@contextmanager
def _saver_with_rights(engine: Engine) -> Iterator[tuple[RecollectSaver, Callable[[str], object]]]:
    """A saver whose Redis user has every right, and what changes them."""
    name = uuid.uuid4().hex
    url = engine.endpoint.socket_url
    assert url is not None
    with hands_on(engine) as hands:
        hands.execute_command("ACL", "SETUSER", name, "on", ">secret", "~*", "+@all")
        with RecollectSaver(f"unix://{name}:secret@{url.partition('@')[2]}&prefix={name}") as saver:
            yield saver, lambda right: hands.execute_command("ACL", "SETUSER", name, right)


@pytest.mark.parametrize("lost", ["zadd", "sadd"])
def test_a_change_that_is_stopped_half_way_is_not_told_as_not_written(
    engine: Engine, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of an open saver loses a right, and has it again before the change is repeated."""
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    with _saver_with_rights(engine) as (saver, change):
        first = saver.put(THREAD, empty_checkpoint(), {}, {})
        change(f"-{lost}")
        checkpoint = empty_checkpoint()
        with pytest.raises(OutcomeUnknown, match="put the same again"):
            saver.put(first, checkpoint, {}, {})
        change(f"+{lost}")
        second = saver.put(first, checkpoint, {}, {})
        assert [one.config for one in saver.list(THREAD)] == [second, first]


def test_writes_that_could_not_be_counted_are_not_there(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they would be taken for what is left of more."""
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    with _saver_with_rights(engine) as (saver, change):
        config = saver.put(THREAD, empty_checkpoint(), {}, {})
        change("-hincrby")
        with pytest.raises(OutcomeUnknown, match="put the same again"):
            saver.put_writes(config, [("c", "said")], "task")
        change("+hincrby")
        for there in ([], [("task", "c", "said")]):
            found = saver.get_tuple(config)
            assert found is not None
            assert found.pending_writes == there
            saver.put_writes(config, [("c", "said")], "task")


@pytest.mark.parametrize("kinds", ["c", "i", "l", "v", "n", "w", "cil", "cilvnw"])
def test_what_the_engine_evicts_is_told(engine: Engine, kinds: str) -> None:
    """Pending writes too: a step would be done again, a delta channel would lack what was written to it."""
    url = address(engine)
    with hands_on(engine) as hands, RecollectSaver(url) as saver:
        for step in "12":
            checkpoint = {
                **empty_checkpoint(),
                "channel_values": {"a": step},
                "channel_versions": {"a": step},
            }
            config = saver.put(THREAD, cast(Any, {**checkpoint, "id": step}), {}, {"a": step})
            for number in range(2):
                saver.put_writes(config, [("d", number), ("d", number + 1)], f"task {number}")
        for copy in ("copy", "copy"):
            saver.copy_thread("t", copy)
            found = saver.get_tuple({"configurable": {"thread_id": copy, "checkpoint_ns": ""}})
            assert found is not None
            assert len(found.pending_writes or ()) == 4
        for kind in kinds:
            names = hands.keys(f"{url.partition('prefix=')[2]}:langgraph:{kind}:{b't'.hex()}:*")
            assert hands.delete(*names)
        saver.copy_thread("t", "copy of what is left")
        with pytest.raises(Unreadable, match=TOLD):
            list(saver.list({"configurable": {"thread_id": "copy of what is left"}}))
        with pytest.raises(Unreadable, match=TOLD):
            saver.get_tuple(THREAD)
        with pytest.raises(Unreadable, match=TOLD):
            list(saver.list(THREAD))
        if kinds == "w":
            saver.put_writes(config, [("d", 5)], "another task")
        with pytest.raises(Unreadable, match=TOLD):
            saver.get_tuple(config)
        saver.delete_thread("t")
        assert saver.get_tuple(THREAD) is None
        config = saver.put(THREAD, empty_checkpoint(), {}, {})
        assert [one.config for one in saver.list(THREAD)] == [config]


TOLD = r"not there any more|do not have the same"
