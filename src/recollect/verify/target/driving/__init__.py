"""Stores that a framework uses in several steps, driven as an application of that framework drives them.

A LangGraph thread is read, added to and put; an ADK session is fetched and gets an event. Each module here has one of
these courses, for any store with those methods. None of them imports its framework until there is a store of it: the
classes of messages and events are those that the store's own annotations name.

A course is written once, for synchronous and asynchronous stores: a generator that yields what a method returned and is
sent what came of it. `play` runs it to its end, or returns something to await where the store does.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, TypeVar

from recollect.verify.target.interfaces import Interface

Result = TypeVar("Result")
Course = Generator[Any, Any, Result]

TRIES = 20
"""How often an application fetches a session again because somebody else was quicker."""


def play(course: Course[Result]) -> Result | Coroutine[Any, Any, Result]:
    """What the course returns; something to await if any step is."""
    try:
        step = next(course)
        while not inspect.isawaitable(step):
            step = course.send(step)
    except StopIteration as end:
        result: Result = end.value
        return result
    return _awaited(course, step)


async def _awaited(course: Course[Result], step: Any) -> Result:
    try:
        while True:
            try:
                value = await step if inspect.isawaitable(step) else step
            except Exception as error:
                step = course.throw(error)
            else:
                step = course.send(value)
    except StopIteration as end:
        result: Result = end.value
        return result


class Driven:
    """A store and the steps in which it is used. `append` and `history` are what the kit calls."""

    interface: Interface
    expected_errors: tuple[str, ...] = ()
    """Names of errors with which the framework says that somebody else was quicker, and nothing was written."""

    rewrites = False
    """Whether an append puts back everything that it has read, with the new messages."""

    @classmethod
    def knows(cls, store: Any) -> bool:
        """Whether it can be driven, as far as its annotations tell: the names and the number of arguments fit."""
        return True

    def __init__(self, store: Any) -> None:
        self.store = store

    @property
    def is_async(self) -> bool:
        """Whether the methods that are called are coroutines."""
        raise NotImplementedError

    def append(self, session: str, messages: Sequence[Any]) -> Any:
        return play(self.appending(session, list(messages)))

    def history(self, session: str) -> Any:
        return play(self.reading(session))

    def appending(self, session: str, messages: list[Any]) -> Course[None]:
        raise NotImplementedError

    def reading(self, session: str) -> Course[list[Any]]:
        raise NotImplementedError

    def somebody_was_quicker(self, error: Exception) -> bool:
        return bool({kind.__name__ for kind in type(error).__mro__} & set(self.expected_errors))
