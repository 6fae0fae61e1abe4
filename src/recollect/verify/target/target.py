"""The store under test, as the kit drives it.

A target goes by a name: a built-in (`sqlite`, `redis`, `postgres`, `chroma`), a released store of the `registry`, or
``package.module:factory``. What is recognised without any adapter is in `shape`. A store may be synchronous or
asynchronous, one for all sessions or one per session; a factory may return it or something to await.

Everything here runs inside a worker process, which is one sequential client, or several callers of the same stores.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, cast, get_args

from recollect.guarantees import DURABILITIES
from recollect.message import Message
from recollect.store import Receipt, Stored
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target.about import SAID, said_in, session_about
from recollect.verify.target.contents import CONTENT, real_id
from recollect.verify.target.driving import Driven
from recollect.verify.target.interface_choice import FORM, Form, interface_of, is_open
from recollect.verify.target.interfaces import Interface, parameters
from recollect.verify.target.outcomes import of_read
from recollect.verify.target.pipe import Acked, Refresh, Said
from recollect.verify.target.read_limits import (
    LIMITS,
    NOBODY,
    Amounts,
    budgets_in,
    is_of_pages,
    most_of_both,
    wants_number,
)
from recollect.verify.target.registry import BUILT_IN, address_of, row_of
from recollect.verify.target.returned import is_loss_marker
from recollect.verify.target.role_and_content import arguments_of
from recollect.verify.target.shape import BadTarget, Shape, shape_of

TRAITS = ("single_writer", "one_process", "no_batches", "at_least_once", "ordered_by_clock")
KEEPS_LAST = "keeps_last="
"""Prefix of the trait that declares a window; the number of messages follows."""


# ---- finding the factory


def resolve(spec: str) -> Callable[..., Any]:
    """The factory behind a name, or `BadTarget` that says what is wrong with it."""
    path = BUILT_IN.get(spec) or address_of(spec)
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        known = ", ".join(BUILT_IN)
        raise BadTarget(
            f"target {spec!r}: name a built-in ({known}), a released store (recollect verify --list) or "
            "package.module:factory"
        )
    module = _import(module_name, spec)
    factory = module
    for part in attribute.split("."):
        if not hasattr(factory, part):
            raise BadTarget(f"target {spec!r}: {module_name} has no {attribute!r}; {_names(module)}")
        factory = getattr(factory, part)
    if not callable(factory):
        raise BadTarget(f"target {spec!r}: {attribute} is {type(factory).__name__}, not something to call")
    return cast(Callable[..., Any], factory)


def prepare_of(spec: str) -> Callable[..., Any] | None:
    """The optional ``prepare(endpoint)`` beside the factory, run once before anything else (migrations)."""
    row = row_of(spec)
    return resolve(row.prepare) if row is not None and row.prepare else _beside(spec, "prepare")


def sessions_of(spec: str) -> Callable[..., Any] | None:
    """The optional ``sessions(endpoint)`` beside the factory, which lists what a database holds."""
    row = row_of(spec)
    return resolve(row.sessions) if row is not None and row.sessions else _beside(spec, "sessions")


def _beside(spec: str, name: str) -> Callable[..., Any] | None:
    module_name, _, attribute = (BUILT_IN.get(spec) or address_of(spec)).partition(":")
    beside: Any = sys.modules.get(module_name)
    for part in attribute.split(".")[:-1]:
        beside = getattr(beside, part, None)
    found = getattr(beside, name, None)
    return found if callable(found) else None


def _import(module_name: str, spec: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: a project's own modules are in its folder
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.split(".")[0] == error.name.split(".")[0]:
            raise BadTarget(
                f"target {spec!r}: no module {error.name!r}; run recollect in the project's folder, or install it"
            ) from error
        raise BadTarget(
            f"target {spec!r}: {module_name} imports {error.name!r}, which is not installed"
        ) from error
    except (Exception, SystemExit) as error:
        raise BadTarget(
            f"target {spec!r}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error


def _names(module: Any) -> str:
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return f"it has {', '.join(sorted(names)[:8])}" if names else "it has nothing to call"


# ---- one store, or one per session


class Target:
    """A target inside its worker: stores made by the factory, driven through their shape."""

    def __init__(self, spec: str, endpoint: Endpoint, form: Form = "") -> None:
        """`form` is what the store was seen to take, if it does not say so itself."""
        self.spec = spec
        self._form = form
        self._endpoint = endpoint
        self._factory = resolve(spec)
        self._per_session = _takes_session(self._factory)
        self._stores: dict[str, Any] = {}
        self._read_raw: dict[str, list[Any]] = {}
        self._most: Amounts | None = None
        """The most that its reads take; None: not asked yet."""
        self.shape: Shape

    async def open(self) -> None:
        """Makes the first store, so that a factory that raises is known before anything is written."""
        probe = await self._make(NOBODY if self._per_session else "")
        shape = shape_of(probe, self.spec, self._per_session)
        self._kind = type(probe)
        self._drive, self.shape = shape.drive, shape.driven
        store = self._driven(probe)
        self._methods = _Methods(store, self.shape, self._form)
        if not self._per_session:
            self._stores[""] = store

    @property
    def abilities(self) -> list[str]:
        """What the workloads may ask for."""
        found = [name for name in ("forget", "context", "search") if self._methods.has(name)]
        found += ["batches"] if self.shape.batches else []
        found += ["whole-list"] if self.shape.whole_list else []
        found += ["rewrites"] if getattr(self.shape.drive, "rewrites", False) else []
        found += [name for name in ("turn", "expect") if self._methods.write_takes(name)]
        found += ["last"] if self._methods.limits_to_last else []
        found += ["after"] if self._methods.read_takes("after") else []
        found += [name for name in ("retract", "replace", "fork") if self._methods.changes_by(name)]
        found += ["append_many"] if self._methods.spans_sessions else []
        found += ["annotate"] if self._methods.annotates else []
        found += ["find"] if self._methods.finds else []
        found += ["window"] if self.keeps_last is not None else []
        found += ["expires"] if self.retention_s is not None else []
        found += [f"{FORM}{self._form}"] if self._form and self.is_open else []
        return found + sorted(f"{CONTENT}{kind}" for kind in self.interface.kinds)

    @property
    def is_open(self) -> bool:
        """Whether it does not say in which form it takes messages."""
        return self._methods.is_open

    @property
    def interface(self) -> Interface:
        """How it takes its messages."""
        return self._methods.interface

    @property
    def stores(self) -> list[Any]:
        """The stores made so far, or, before the first per-session one, the kind they will be of."""
        made = [store.store if isinstance(store, Driven) else store for store in self._stores.values()]
        return made or [self._kind]

    @property
    def traits(self) -> list[str]:
        declared = [trait for trait in self._declared_traits if not trait.startswith(KEEPS_LAST)]
        unknown = set(declared) - set(TRAITS)
        if unknown:
            raise BadTarget(
                f"target {self.spec!r}: unknown traits {sorted(unknown)}; known: {', '.join(TRAITS)}, {KEEPS_LAST}N"
            )
        return declared

    @property
    def keeps_last(self) -> int | None:
        """How many messages of a session the store says it keeps, or gives at once; None means all of them."""
        return (self._most or Amounts()).window(self._declared_window)

    @property
    def _declared_window(self) -> int | None:
        for trait in self._declared_traits:
            if trait.startswith(KEEPS_LAST):
                count = trait.removeprefix(KEEPS_LAST)
                if not count.isdecimal() or int(count) < 1:
                    raise BadTarget(
                        f"target {self.spec!r}: the trait {trait!r} does not say how many messages: {KEEPS_LAST}50"
                    )
                return int(count)
        return None

    @property
    def _declared_traits(self) -> Sequence[str]:
        if (row := row_of(self.spec)) is not None and row.traits:
            return row.traits
        return getattr(self._factory, "traits", None) or getattr(self._kind, "traits", None) or ()

    @property
    def release(self) -> str:
        """The distribution of a store that has a name, and the version that is installed here."""
        row = row_of(self.spec)
        return "" if row is None else row.released

    @property
    def is_async(self) -> bool:
        """Whether its methods are coroutines: then several tasks can use it, but not several threads."""
        return self._methods.is_async

    @property
    def expected_errors(self) -> list[str]:
        """Names of exceptions that the target declares as answers: nothing was written, and the caller may retry."""
        return self._names_of_errors("expected_errors") or list(self._methods.expected_errors)

    @property
    def loss_errors(self) -> list[str]:
        """Names of exceptions with which its reads say that something that was acknowledged is gone."""
        return self._names_of_errors("loss_errors")

    def _names_of_errors(self, attribute: str) -> list[str]:
        declared: Any = getattr(self._factory, attribute, None) or getattr(self._kind, attribute, ())
        if isinstance(declared, str) or not all(isinstance(name, str) for name in declared):
            raise BadTarget(f"target {self.spec!r}: {attribute} is {declared!r}, not the names of exceptions")
        return list(declared)

    @property
    def retention_s(self) -> float | None:
        """How long the store says memory lives; None means for ever."""
        declared = getattr(self._factory, "retention_s", None) or getattr(self._kind, "retention_s", None)
        if declared is not None and (not isinstance(declared, int | float) or declared <= 0):
            raise BadTarget(f"target {self.spec!r}: retention_s is {declared!r}, not a number of seconds")
        return declared

    @property
    def refresh(self) -> Refresh:
        """From when that counts: a session's latest append, unless the store says otherwise."""
        declared = getattr(self._factory, "retention_refresh", None)
        declared = declared or getattr(self._kind, "retention_refresh", "append")
        known = get_args(Refresh)
        if declared not in known:
            raise BadTarget(
                f"target {self.spec!r}: retention_refresh is {declared!r}, not one of {', '.join(known)}"
            )
        return cast(Refresh, declared)

    async def append(self, session: str, said: Sequence[Said], turn: str | None, expect: int | None) -> Acked:
        options: dict[str, Any] = {}
        if turn is not None and self._methods.write_takes("turn"):
            options["turn"] = turn
        if expect is not None:
            options["expect"] = expect
        store = await self._store(session)
        answer: Any = None
        if self.shape.batches or self._drive is not None:
            messages = [self._methods.interface.make(one) for one in said]
            answer = await self._call(store, self._methods.write, session, messages, **options)
        else:
            for one in said:
                answer = await self._append_one(store, session, self._methods.interface.make(one), options)
                if answer is False:
                    break
        return _acknowledged(answer)

    async def _append_one(self, store: Any, session: str, message: Any, options: dict[str, Any]) -> Any:
        if (apart := self._methods.apart) is None:
            return await self._call(store, self._methods.write, session, message, **options)
        method = getattr(store, self._methods.write)
        return await _resolved(method(**apart.given(self._named(session), message), **options))

    async def append_many(self, turns: Mapping[str, Sequence[Said]], turn: str | None) -> Acked:
        """One turn over several sessions."""
        made = {
            self._named(session): [self._methods.interface.make(one) for one in said]
            for session, said in turns.items()
        }
        options = self._methods.change_options("append_many", turn, None)
        (store,) = self._stores.values()
        answer = await _resolved(store.append_many(made, **options))
        receipts = [one for one in (answer or {}).values() if isinstance(one, Receipt)]
        # The parts are one write, so it is as durable as the least durable of them.
        least = min(receipts, key=lambda one: DURABILITIES.index(one.durability.value), default=None)
        return Acked() if least is None else Acked(None, least.durability.value, least.replicas)

    async def save(self, session: str, said: Sequence[Said], drop: int) -> Acked:
        known = self._read_raw.get(session, [])
        messages = [*known[drop:], *(self._methods.interface.make(one) for one in said)]
        store = await self._store(session)
        return _acknowledged(await self._call(store, self._methods.write, session, messages))

    async def replace(
        self, session: str, said: Sequence[Said], turn: str | None, expect: int | None
    ) -> Acked:
        if (annotated := session_about(session)) is not None:
            return await self._annotate(annotated, said[-1].text, turn, expect)
        messages = [self._methods.interface.make(one) for one in said]
        options = self._methods.change_options("replace", turn, expect)
        store = await self._store(session)
        return _acknowledged(await self._call(store, "replace", session, messages, **options))

    async def _annotate(self, session: str, text: str, turn: str | None, expect: int | None) -> Acked:
        options = self._methods.change_options("annotate", turn, expect)
        store = await self._store(session)
        return _acknowledged(await self._call(store, "annotate", session, {SAID: text}, **options))

    async def retract(
        self, session: str, places: Sequence[int], turn: str | None, expect: int | None
    ) -> Acked:
        # Places refer to the list that was reported (`returned.elements`), which has no loss markers.
        known = [item for item in self._read_raw[session] if not is_loss_marker(item)]
        sequences = [known[place].sequence for place in places]
        options = self._methods.change_options("retract", turn, expect)
        store = await self._store(session)
        return _acknowledged(await self._call(store, "retract", session, *sequences, **options))

    async def fork(self, session: str, new: str, turn: str | None, expect: int | None) -> Acked:
        options = self._methods.change_options("fork", turn, expect)
        store = await self._store(session)
        return _acknowledged(await self._call(store, "fork", session, self._named(new), **options))

    async def position(self, session: str) -> int:
        session = session_about(session) or session
        return int(await self._call(await self._store(session), "position", session))

    async def read(self, session: str, last: int | None, after: int | None) -> tuple[list[Any], int | None]:
        """The raw elements, and the sequence of the last one if the store has sequences."""
        if (described := session_about(session)) is not None:
            store = await self._store(described)
            return said_in((await self._call(store, "describe", described)).metadata), None
        store = await self._store(session)
        options: dict[str, Any] = {} if after is None else {"after": after}
        try:
            raw = await self._limited(store, session, self._most or Amounts(), last, options)
        except Exception as error:
            if self._most is not None or of_read(error) == "unknown":
                raise
            if await self.ask_for_the_most() == Amounts():
                raise
            raw = await self._limited(store, session, self._most or Amounts(), last, options)
        if last is None and after is None:
            self._read_raw[session] = raw
        sequence = raw[-1].sequence if raw and isinstance(raw[-1], Stored) else None
        return raw, sequence

    async def _limited(
        self, store: Any, session: str, most: Amounts, last: int | None, options: dict[str, Any]
    ) -> list[Any]:
        methods = self._methods
        limits = dict.fromkeys(methods.budgets, most.budget)
        if last is not None and methods.limits_to_last:
            limits[methods.limit] = min(last, most.limit)
        elif methods.always_limited:
            limits[methods.limit] = most.limit
        return await _listed(await self._call(store, methods.read, session, **limits, **options))

    async def ask_for_the_most(self) -> Amounts:
        """Finds out the most that reads take; raises if the engine does not answer."""
        methods = self._methods

        async def read(amounts: Amounts) -> object:
            return await self._limited(await self._store(NOBODY), NOBODY, amounts, None, {})

        self._most = await most_of_both(read, limited=methods.always_limited, budgeted=bool(methods.budgets))
        return self._most

    async def forget(self, session: str) -> None:
        await self._call(await self._store(session), "forget", session)

    async def context(self, session: str) -> list[list[Any]]:
        parts = await self._call(await self._store(session), "context", session)
        return [list(part) for part in (parts.values() if isinstance(parts, Mapping) else parts)]

    async def search(self, session: str) -> tuple[list[Any], list[Any]]:
        """What the store lists and what its index finds. Without an index: some of what it lists, by their ids."""
        if not self._methods.has("search"):
            return await self._found_by_id(session)
        listed, found = await self._call(await self._store(session), "search", session)
        return list(listed), list(found)

    async def _found_by_id(self, session: str) -> tuple[list[Any], list[Any]]:
        """What came or went while it was looked for is not compared."""
        store = await self._store(session)
        before = await self._listed(store, session)
        some = before[:: max(1, len(before) // FOUND_MAX)][-FOUND_MAX:]
        found = [await self._call(store, "find", session, named) for _, named in some]
        after = {item.sequence: item for item, _ in await self._listed(store, session)}
        stayed = [(item, one) for (item, _), one in zip(some, found, strict=True)]
        stayed = [(item, one) for item, one in stayed if after.get(item.sequence) == item]
        return [item for item, _ in stayed], [item for item, one in stayed if one == item]

    async def _listed(self, store: Any, session: str) -> list[tuple[Stored, str]]:
        """Messages, and the id of each."""
        return [
            (item, item.message.id)
            for item in await self._call(store, self._methods.read, session)
            if isinstance(item, Stored) and isinstance(item.message, Message)
        ]

    async def close(self) -> None:
        for store in self._stores.values():
            await _closed(store)

    async def let_go(self, session: str) -> None:
        """Closes what was opened for this session alone, when it is not needed any more."""
        self._read_raw.pop(session, None)
        if self._per_session and session in self._stores:
            await _closed(self._stores.pop(session))

    def for_caller(self) -> "Target":
        """The same stores, for another caller in this process: each keeps its own reads."""
        own = copy(self)
        own._read_raw = {}
        return own

    async def _store(self, session: str) -> Any:
        key = session if self._per_session else ""
        if key not in self._stores:
            made = self._driven(await self._make(session))
            if self._stores.setdefault(key, made) is not made:
                await _closed(made)  # another caller of this process was quicker
        return self._stores[key]

    async def _make(self, session: str) -> Any:
        arguments = (self._endpoint, self._named(session)) if self._per_session else (self._endpoint,)
        try:
            return await _resolved(self._factory(*arguments))
        except BadTarget:
            raise
        except (Exception, SystemExit) as error:
            raise FactoryRaised(
                f"target {self.spec!r}: the factory raised {type(error).__name__}: {error}"
            ) from error

    def _driven(self, store: Any) -> Any:
        return store if self._drive is None else self._drive(store)

    def _named(self, session: str) -> str:
        """On an engine that others use too, every session id contains our word, by which keys are cleaned up."""
        word, session = self._endpoint.namespace, real_id(session)
        return session if word is None else f"{word}-{session}"

    async def _call(self, store: Any, name: str, session: str, *arguments: Any, **options: Any) -> Any:
        method = getattr(store, name)
        if not callable(method):  # LangChain's `messages` is a property
            return method
        leading = () if self.shape.per_session else (self._named(session),)
        return await _resolved(method(*leading, *arguments, **options))


class FactoryRaised(Exception):
    """The factory raised: at first that means a bad target, later it is an outcome of the fault."""


FOUND_MAX = 8
"""How many messages are looked for by their ids at a time: each may be a scan of the session."""


async def _closed(store: Any) -> None:
    store = store.store if isinstance(store, Driven) else store
    close = getattr(store, "close", None) or getattr(store, "aclose", None)
    if callable(close):
        await _resolved(close())


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _listed(answer: Any) -> list[Any]:
    """The messages in what a read returned: also if it yields them, or if they are one part of a conversation."""
    if hasattr(answer, "__aiter__"):
        return [one async for one in answer]
    if isinstance(answer, Mapping):
        lists = [value for value in answer.values() if isinstance(value, list | tuple)]
        if answer and "messages" not in answer and len(lists) != 1:
            names = ", ".join(map(str, answer))
            raise TypeError(f"a read returned a mapping with {names[:80]}, and not a list of messages")
        answer = answer.get("messages", lists[0] if lists else [])
    elif isinstance(of_it := getattr(answer, "messages", None), list | tuple):
        answer = of_it
    return list(answer or [])


def _takes_session(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    return len(required) >= 2 or any(p.name.startswith("session") for p in positional[1:2])


# ---- what the store's methods take


class _Methods:
    """What the first store's methods take; the other stores are of the same kind."""

    def __init__(self, store: Any, shape: Shape, form: Form) -> None:
        self._shape = shape
        self._store = store
        write, read = shape.write_of(store), shape.read_of(store)
        assert write is not None
        assert read is not None
        self.write, self.read = write, read
        self._write = parameters(getattr(store, write))
        reader = inspect.getattr_static(type(store), read, None)
        self._read = {} if isinstance(reader, property) else parameters(getattr(store, read))
        self.limit = next((name for name in LIMITS if name in self._read), "")
        # The length of a page is no claim about the newest.
        self.limits_to_last = bool(self.limit) and not is_of_pages(self._read)
        self.always_limited = bool(self.limit) and wants_number(self._read[self.limit])
        self.budgets = budgets_in(self._read)
        driven = isinstance(store, Driven)
        self.apart = arguments_of(getattr(store, write), keyed=not shape.per_session) if shape.apart else None
        if driven:
            self.interface: Interface = store.interface
        elif self.apart is not None:
            self.interface = self.apart.interface
        else:
            self.interface = interface_of(shape.name, self._write, form)
        self.is_open = not driven and is_open(shape.name, self._write)
        self.expected_errors: Sequence[str] = store.expected_errors if driven else ()

    @property
    def is_async(self) -> bool:
        if isinstance(self._store, Driven):
            return self._store.is_async
        methods = (getattr(self._store, name, None) for name in (self.write, self.read))
        return any(inspect.iscoroutinefunction(method) for method in methods)

    def has(self, name: str) -> bool:
        return callable(getattr(self._store, name, None))

    def changes_by(self, name: str) -> bool:
        """Whether the store has this method as `recollect.store` defines it: then it takes `expect`, and the history
        has sequences."""
        if self._shape.name != "append/history" or not self.has("position") or not self.has(name):
            return False
        return "expect" in parameters(getattr(self._store, name))

    @property
    def spans_sessions(self) -> bool:
        """Whether it has `append_many` as `recollect.store` defines it, with turn ids if its appends have them."""
        if self._shape.name != "append/history" or not self.has("append_many"):
            return False
        return "turn" in parameters(self._store.append_many) or not self.write_takes("turn")

    @property
    def annotates(self) -> bool:
        """Whether it has `annotate` and `describe` as `recollect.store` defines them."""
        return self.changes_by("annotate") and self.has("describe")

    @property
    def finds(self) -> bool:
        """Whether it has `find` as `recollect.store` defines it, and no index of its own."""
        if self._shape.name != "append/history" or not self.has("find") or self.has("search"):
            return False
        return "message_id" in parameters(self._store.find)

    def change_options(self, name: str, turn: str | None, expect: int | None) -> dict[str, Any]:
        options: dict[str, Any] = {} if expect is None else {"expect": expect}
        if turn is not None and "turn" in parameters(getattr(self._store, name)):
            options["turn"] = turn
        return options

    def write_takes(self, name: str) -> bool:
        return name in self._write

    def read_takes(self, name: str) -> bool:
        return name in self._read


class NotAcknowledged(Exception):
    """The store returned `False`: it told its caller that something went wrong, and not what."""


def _acknowledged(answer: Any) -> Acked:
    if answer is False:
        raise NotAcknowledged("it returned False")
    if isinstance(answer, Receipt):
        return Acked(answer.last, answer.durability.value, answer.replicas)
    return Acked()
