"""The same random calls on ours and on the framework's own store: the answers must be equal.

A machine of hypothesis is made for each example; `compared` runs one on an engine. Async stores are driven on one loop.
"""

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from recollect import Store, open_store

Value = TypeVar("Value")

EXAMPLES = int(os.environ.get("RECOLLECT_ADAPTER_EXAMPLES", "15"))
"""On each engine. Many more are for a night, not for every change."""


class World:
    """A store of ours on an engine, and the loop that both sides run on: the same for all examples."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._runner = asyncio.Runner()
        self.store: Store = self.run(_opened(url))

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self._runner.run(work)

    def close(self) -> None:
        self.run(self.store.close())
        self._runner.close()


class Compared(RuleBasedStateMachine):
    """One example: a session that no other example uses."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.run = world.run
        self.store = world.store
        self.session = f"session-{uuid.uuid4()}"


async def _opened(url: str) -> Store:
    return await open_store(url)


def compared(make: Callable[[World], RuleBasedStateMachine], url: str, steps: int = 25) -> None:
    """For async stores."""
    world = World(url)
    try:
        machine(lambda: make(world), steps)
    finally:
        world.close()


def machine(make: Callable[[], RuleBasedStateMachine], steps: int = 25) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        cast(Any, make),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
