"""OpenTelemetry for stores, recall, chat and watch: spans and metrics, by the GenAI memory conventions.

Nothing here runs unless the application has set up a provider of spans or metrics before it opens a store: an opened
store then gets a subclass whose methods are measured. Without one it keeps its own class, costs nothing, and does not
even import opentelemetry. Contents, queries and error texts are never recorded; session ids are.

`docs/observability.md` lists every span, attribute and metric.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from recollect import __version__
from recollect.errors import Conflict, StoreReplaced
from recollect.message import Damaged
from recollect.secret import scheme_of

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

Opened = TypeVar("Opened")

SCOPE = "recollect"
FAILED_TURNS_MAX = 1_000
"""Turns that ended in an error and may be retried; more are not remembered."""

SYSTEMS = {
    "sqlite": "sqlite",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
    "valkey": "redis",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}
"""By an address's scheme, without what follows a `+`: the value of ``db.system.name``."""


class MeasuredCall(NamedTuple):
    """How a method is reported: the operation, and how many records it is about."""

    operation: str
    records: Callable[[tuple[Any, ...], Any], int] | None = None
    """From the arguments and the result; None if it is not known."""
    session: bool = True
    """Whether the first argument is a session."""


def _of_result(arguments: tuple[Any, ...], result: Any) -> int:
    return len(result)


def _of_second(arguments: tuple[Any, ...], result: Any) -> int:
    return len(arguments[1])


STORE = {
    "append": MeasuredCall("create_memory", _of_second),
    "append_many": MeasuredCall("create_memory", lambda a, r: sum(map(len, a[0].values())), session=False),
    "fork": MeasuredCall("create_memory"),
    "replace": MeasuredCall("update_memory", _of_second),
    "annotate": MeasuredCall("update_memory"),
    "history": MeasuredCall("search_memory", _of_result),
    "find": MeasuredCall("search_memory", lambda a, r: int(r is not None)),
    "retract": MeasuredCall("delete_memory", lambda a, r: len(a) - 1),
    "forget": MeasuredCall("delete_memory"),
}
RECALL = {
    "remember": MeasuredCall("upsert_memory", lambda a, r: len(r.memories), session=False),
    "add": MeasuredCall("create_memory", lambda a, r: len(r.memories), session=False),
    "summarise": MeasuredCall("upsert_memory", _of_result, session=False),
    "search": MeasuredCall("search_memory", lambda a, r: len(r.hits), session=False),
    "memories": MeasuredCall("search_memory", _of_result, session=False),
    "forget": MeasuredCall("delete_memory", lambda a, r: int(r), session=False),
    "erase": MeasuredCall("delete_memory", session=False),
}
CHAT = {
    "hear": MeasuredCall("recollect.hear", session=False),
    "keep": MeasuredCall("recollect.keep", session=False),
}


def active() -> bool:
    """Whether the application has a provider of spans or metrics that is not OpenTelemetry's empty one."""
    if "opentelemetry" not in sys.modules or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    try:
        from opentelemetry import metrics, trace
    except ImportError:  # another distribution of the same namespace, without the API
        return False
    providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
    empty = ("opentelemetry.trace", "opentelemetry.metrics")
    return any(not type(provider).__module__.startswith(empty) for provider in providers)


async def opened(url: str, opening: Awaitable[Opened], methods: dict[str, MeasuredCall]) -> Opened:
    """What `opening` returns, measured if somebody is listening."""
    if not active():
        return await opening
    observer = Observer(url)
    made = await observer.measured("open", MeasuredCall("create_memory_store", session=False), opening, ())
    return observer.observing(made, methods)


def observed(made: Opened, url: str, methods: dict[str, MeasuredCall]) -> Opened:
    """The same for what is made without waiting."""
    return Observer(url).observing(made, methods) if active() else made


class Observer:
    """Spans and metrics of one opened store."""

    def __init__(self, url: str) -> None:
        from opentelemetry import metrics, trace

        system = SYSTEMS.get(scheme_of(url).partition("+")[0])
        self._common: dict[str, AttributeValue] = {} if system is None else {"db.system.name": system}
        self._server = _server_of(url)
        self._store: dict[str, AttributeValue] = {}
        self._tracer = trace.get_tracer_provider().get_tracer(SCOPE, __version__)
        in_process = system == "sqlite" or system is None
        self._kind = trace.SpanKind.INTERNAL if in_process else trace.SpanKind.CLIENT
        self._error = trace.Status(trace.StatusCode.ERROR)
        meter = metrics.get_meter_provider().get_meter(SCOPE, __version__)
        self._duration = meter.create_histogram("gen_ai.client.operation.duration", "s", "Time of a call.")
        self._acknowledged = meter.create_counter(
            "recollect.acknowledged", "{record}", "Records that were acknowledged, by what they survive."
        )
        self._batch = meter.create_histogram("recollect.batch.size", "{write}", "Writes sent together.")
        self._queued = meter.create_histogram(
            "recollect.queue.duration", "s", "How long a batch's first write waited before it was sent."
        )
        self._retries = meter.create_counter(
            "recollect.retries", "{call}", "Turns written again after an error."
        )
        self._conflicts = meter.create_counter(
            "recollect.conflicts", "{call}", "Writes that lost to another writer."
        )
        self._damaged = meter.create_counter(
            "recollect.damaged", "{record}", "Damaged records that were read."
        )
        self._replaced = meter.create_counter(
            "recollect.replaced", "{call}", "Calls that found another store in place of theirs."
        )
        self._failed_turns: OrderedDict[tuple[str, str], None] = OrderedDict()

    def observing(self, made: Opened, methods: dict[str, MeasuredCall]) -> Opened:
        """The same object, with its methods measured."""
        identity = getattr(made, "identity", None) or getattr(getattr(made, "rows", None), "identity", None)
        if isinstance(identity, str):
            self._store = {"gen_ai.memory.store.id": identity}
        vars(made)["_observer"] = self
        for queue in _queues_of(made):
            queue.observe = self.note_batch
        made.__class__ = _measured_class(cast(type, type(made)), tuple(methods.items()))
        return made

    def note_batch(self, size: int, waited_s: float) -> None:
        self._batch.record(size, self._common)
        self._queued.record(max(waited_s, 0.0), self._common)

    async def measured(
        self,
        name: str,
        how: MeasuredCall,
        call: Awaitable[Opened],
        arguments: tuple[Any, ...],
        turn: str | None = None,
    ) -> Opened:
        """The call's result, in a span of its own."""
        attributes = {
            "gen_ai.operation.name": how.operation,
            "recollect.method": name,
            **self._common,
            **self._server,
            **self._store,
        }
        session = arguments[0] if how.session and arguments and isinstance(arguments[0], str) else None
        if session is not None:
            attributes["gen_ai.conversation.id"] = session
        told: dict[str, AttributeValue] = {"gen_ai.operation.name": how.operation, **self._common}
        if turn is not None and session is not None and self._failed_turns.pop((session, turn), 0) is None:
            self._retries.add(1, told)
            attributes["recollect.retry"] = True
        began = time.monotonic()
        with self._tracer.start_as_current_span(
            how.operation,
            kind=self._kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                result = await call
            except BaseException as error:
                told["error.type"] = type(error).__name__
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(self._error)
                self._note_error(error, told, session, turn)
                raise
            else:
                span.set_attributes(self._note_result(how, arguments, result, told))
                return result
            finally:
                self._duration.record(time.monotonic() - began, told)

    def _note_error(
        self, error: BaseException, told: dict[str, AttributeValue], session: str | None, turn: str | None
    ) -> None:
        if isinstance(error, Conflict):
            self._conflicts.add(1, told)
        elif isinstance(error, StoreReplaced):
            self._replaced.add(1, told)
        elif turn is not None and session is not None:
            self._failed_turns[session, turn] = None
            if len(self._failed_turns) > FAILED_TURNS_MAX:
                self._failed_turns.popitem(last=False)

    def _note_result(
        self, how: MeasuredCall, arguments: tuple[Any, ...], result: Any, told: dict[str, AttributeValue]
    ) -> dict[str, AttributeValue]:
        """What only the result says; also counted."""
        count = None if how.records is None else how.records(arguments, result)
        attributes: dict[str, AttributeValue] = {}
        if count is not None:
            attributes["gen_ai.memory.record.count"] = count
        durability = _durability_of(result)
        if durability is not None:
            attributes["recollect.durability"] = durability
            if how.operation != "delete_memory" and count is not None:
                self._acknowledged.add(count, {**told, "recollect.durability": durability})
        if how.operation == "search_memory" and (damaged := _damaged_in(result)):
            attributes["recollect.damaged"] = damaged
            self._damaged.add(damaged, told)
        return attributes


@functools.cache
def _measured_class(kind: type, methods: tuple[tuple[str, MeasuredCall], ...]) -> type:
    """A subclass with the same name, whose methods report what they did."""
    names: dict[str, Any] = {name: _measured_method(getattr(kind, name), how) for name, how in methods}
    names |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), names)


def _measured_method(
    method: Callable[..., Awaitable[Any]], how: MeasuredCall
) -> Callable[..., Awaitable[Any]]:
    name = method.__name__
    order = method.__code__.co_varnames[1 : method.__code__.co_argcount]

    @functools.wraps(method)
    async def measured(self: Any, *arguments: Any, **named: Any) -> Any:
        given = arguments + tuple(named[one] for one in order[len(arguments) :] if one in named)
        turn = named.get("turn")
        return await self._observer.measured(name, how, method(self, *arguments, **named), given, turn)

    return measured


def _queues_of(made: Any) -> list[Any]:
    """Where writes wait to be sent together; in a cluster, the servers that are known when the store is opened."""
    servers = getattr(made, "_servers", None)
    shards = [getattr(servers, "shard", None), *getattr(servers, "_shards", {}).values()]
    queues = [getattr(made, "_batcher", None), *(getattr(shard, "commit", None) for shard in shards)]
    return [queue for queue in queues if queue is not None]


def _durability_of(result: Any) -> str | None:
    if isinstance(result, dict):  # of receipts
        values = [one.durability for one in result.values()]
        return min(values).value if values else None
    durability = getattr(result, "durability", None)
    return getattr(durability, "value", None)


def _damaged_in(result: Any) -> int:
    items = result if isinstance(result, list) else [result]
    return sum(isinstance(getattr(item, "message", None), Damaged) for item in items)


def _server_of(url: str) -> dict[str, AttributeValue]:
    """The host and the port, if the address has exactly one; never a user or a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # several hosts
        return {}
    if not host or "," in host:
        return {}
    return {"server.address": host, **({} if port is None else {"server.port": port})}


class WatchTelemetry:
    """A watch's alarms and readings, if somebody is listening."""

    def __init__(self) -> None:
        self._alarms: Any = None
        if not active():
            return
        from opentelemetry import metrics

        meter = metrics.get_meter_provider().get_meter(SCOPE, __version__)
        self._alarms = meter.create_counter("recollect.watch.alarms", "{alarm}", "Alarms, by name.")
        self._up = meter.create_gauge("recollect.watch.up", "", "Whether the engine answered last time.")
        self._lag = meter.create_gauge(
            "recollect.watch.replica.lag", "s", "How long the replica has lacked a message."
        )

    def note(self, alarms: list[str], up: int, replica_lag_s: float) -> None:
        if self._alarms is None:
            return
        for name in alarms:
            self._alarms.add(1, {"recollect.alarm": name})
        self._up.set(up)
        self._lag.set(replica_lag_s)
