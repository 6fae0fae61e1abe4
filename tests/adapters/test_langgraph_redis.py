"""What only Redis does to a saver."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from recollect import OutcomeUnknown
from recollect.adapters import carrying
from recollect.adapters.langgraph import RecollectSaver
from recollect.verify.engines import Engine
from tests.stores.redis_places import BUILDS, hands_on, started


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


@pytest.mark.parametrize("lost", ["zadd", "sadd"])
def test_a_change_that_is_stopped_half_way_is_not_told_as_not_written(
    engine: Engine, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of an open saver loses a right, and has it again before the change is repeated."""
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    name = uuid.uuid4().hex
    thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    url = engine.endpoint.socket_url
    assert url is not None
    with hands_on(engine) as hands:
        hands.execute_command("ACL", "SETUSER", name, "on", ">secret", "~*", "+@all")
        with RecollectSaver(f"unix://{name}:secret@{url.partition('@')[2]}&prefix={name}") as saver:
            first = saver.put(thread, empty_checkpoint(), {}, {})
            hands.execute_command("ACL", "SETUSER", name, f"-{lost}")
            checkpoint = empty_checkpoint()
            with pytest.raises(OutcomeUnknown, match="put the same again"):
                saver.put(first, checkpoint, {}, {})
            hands.execute_command("ACL", "SETUSER", name, f"+{lost}")
            second = saver.put(first, checkpoint, {}, {})
            assert [one.config for one in saver.list(thread)] == [second, first]
