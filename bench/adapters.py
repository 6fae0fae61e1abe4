"""Our adapters beside the frameworks' own stores, on the same engine with the same durability, in one run.

    make adapters && .venv-adapters/bin/python bench/adapters.py [--quick] [NAME…]

Each pair gets short slices in turn, in alternating order, and a ratio compares two slices of one round: above 1 ours
is faster. Reported are the median of the rounds' ratios and their spread. `cpu` is the same ratio of processor time in
this process: on a busy machine it says more than the clock does, but it leaves out what the engine does. What is read
is a conversation of a hundred appends that nobody adds to: otherwise who is faster at appending has more to read. The
last lines are a LangGraph thread of a thousand steps: how long a step takes at its end, beside how long it took at its
beginning. Nothing here fails on a number.

The durability is the same on both sides. The SQLite stores of the frameworks leave `synchronous` at FULL, and so do we.
Agent Framework's own history on a machine is a file that is never fsynced: ours is opened as `wal-normal` beside it.
Its history on Redis holds back our drivers, so that pair is for the environment of `make named`:

    .venv-named/bin/python bench/adapters.py agent-framework.redis

Pydantic AI has a store in memory and no other. Beside that one ours pays for the disk, so its append says what a disk
costs and compares nothing.

What is appended is what the framework appends: one item to a session of the Agents SDK, one event to ADK, a checkpoint
to LangGraph, a message to Agent Framework's history, and a question with its answer to LangChain's, which gets both at
the end of a run. LangChain's own history on Redis sends each message by itself, as a bare push that nobody can tell
from its retry.

The results are kept in one file: a run of a few pairs replaces those and leaves the others as they were.
"""

import argparse
import asyncio
import json
import logging
import os
import sqlite3
import tempfile
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from contenders.contender import TEXT
from measuring import Spread
from recollect import open_store
from recollect.verify import engines

RESULTS = Path(__file__).parent / "results" / "adapters.json"
POLICIES = {"sqlite": "wal-full", "redis": "aof-everysec", "postgres": "default"}
MESSAGES_READ = 100
STEPS = 1_000
ROUNDS_OF_STEPS, STEPS_AT_ONCE = 20, 10
FULL_AFTER = 20
"""Steps after which the state of a thread does not grow any more."""

Step = Callable[[], Awaitable[object]]


@dataclass
class Conversation:
    """One side: appends a message, and reads what was said."""

    append: Step
    read: Step


Side = Callable[["Place"], Awaitable[Conversation]]


@dataclass
class Place:
    url: str
    folder: Path
    opened: AsyncExitStack

    @property
    def ours(self) -> str:
        return self.url or f"sqlite:///{self.folder}/ours.db"

    @property
    def theirs(self) -> Path:
        return self.folder / "theirs.db"

    @property
    def ours_without_fsync(self) -> str:
        return f"sqlite:///{self.folder}/ours.db?policy=wal-normal"


@dataclass
class Line:
    name: str
    engine: str
    append: Spread
    read: Spread
    append_cpu: Spread
    read_cpu: Spread
    load: float = field(init=False, default_factory=lambda: os.getloadavg()[0])
    """Of the machine, when it was measured."""


# ---- the pairs


async def _agents(session: Any) -> Conversation:
    item: Any = {"role": "user", "content": TEXT}
    return Conversation(lambda: session.add_items([item]), lambda: session.get_items(MESSAGES_READ))


async def our_agents(place: Place) -> Conversation:
    from recollect.adapters.openai_agents import RecollectSession

    store = await place.opened.enter_async_context(open_store(place.ours))
    return await _agents(RecollectSession(uuid.uuid4().hex, store))


async def their_agents_sqlite(place: Place) -> Conversation:
    from agents import SQLiteSession

    return await _agents(SQLiteSession(uuid.uuid4().hex, place.theirs))


async def their_agents_redis(place: Place) -> Conversation:
    from agents.extensions.memory import RedisSession

    return await _agents(RedisSession.from_url(uuid.uuid4().hex, url=place.url))


async def their_agents_postgres(place: Place) -> Conversation:
    from agents.extensions.memory import SQLAlchemySession

    url = place.url.replace("postgresql://", "postgresql+asyncpg://", 1)
    return await _agents(SQLAlchemySession.from_url(uuid.uuid4().hex, url=url, create_tables=True))


async def _adk(service: Any) -> Conversation:
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import GetSessionConfig
    from google.genai.types import Content, Part

    name = uuid.uuid4().hex
    session = await service.create_session(app_name="bench", user_id="u", session_id=name)
    recent = GetSessionConfig(num_recent_events=MESSAGES_READ)

    async def append() -> object:
        content = Content(role="user", parts=[Part(text=TEXT)])
        return await service.append_event(session, Event(author="user", content=content, id=uuid.uuid4().hex))

    return Conversation(
        append,
        lambda: service.get_session(app_name="bench", user_id="u", session_id=name, config=recent),
    )


async def our_adk(place: Place) -> Conversation:
    from recollect.adapters.adk import RecollectSessionService

    return await _adk(RecollectSessionService(await place.opened.enter_async_context(open_store(place.ours))))


async def their_adk_sqlite(place: Place) -> Conversation:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    return await _adk(SqliteSessionService(str(place.theirs)))


async def their_adk_redis(place: Place) -> Conversation:
    from google.adk.integrations.redis import RedisSessionService, RedisSessionServiceConfig

    return await _adk(RedisSessionService(RedisSessionServiceConfig(uri=place.url)))


async def their_adk_postgres(place: Place) -> Conversation:
    from google.adk.sessions import DatabaseSessionService

    return await _adk(DatabaseSessionService(place.url.replace("postgresql://", "postgresql+asyncpg://", 1)))


async def _langchain(history: Any) -> Conversation:
    from langchain_core.messages import AIMessage, HumanMessage

    async def append() -> object:
        return history.add_messages([HumanMessage(content=TEXT), AIMessage(content=TEXT)])

    async def read() -> object:
        return history.messages

    return Conversation(append, read)


async def our_langchain(place: Place) -> Conversation:
    from recollect.adapters.langchain import RecollectHistory
    from recollect.sync import open_store as open_sync_store

    store = place.opened.enter_context(open_sync_store(place.ours))
    return await _langchain(RecollectHistory(uuid.uuid4().hex, store))


async def their_langchain_sqlite(place: Place) -> Conversation:
    from langchain_community.chat_message_histories import SQLChatMessageHistory

    return await _langchain(SQLChatMessageHistory(uuid.uuid4().hex, connection=f"sqlite:///{place.theirs}"))


async def their_langchain_redis(place: Place) -> Conversation:
    from langchain_community.chat_message_histories import RedisChatMessageHistory

    return await _langchain(RedisChatMessageHistory(uuid.uuid4().hex, url=place.url))


async def _langgraph(saver: Any) -> Conversation:
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    thread: Any = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}
    state: dict[str, Any] = {"config": thread, "version": None, "messages": [], "step": 0}

    async def append() -> object:
        state["version"] = saver.get_next_version(state["version"], None)
        # The last ones only: a thread whose state does not grow, as with a summary.
        state["messages"] = [*state["messages"][1 - FULL_AFTER :], HumanMessage(content=TEXT)]
        versions = {"messages": state["version"]}
        checkpoint = {**empty_checkpoint(), "channel_versions": versions}
        checkpoint["channel_values"] = {"messages": state["messages"]}
        metadata = {"source": "loop", "step": state["step"], "parents": {}}
        state["step"] += 1
        state["config"] = saver.put(state["config"], checkpoint, metadata, versions)
        return state["config"]

    async def read() -> object:
        return saver.get_tuple(thread)

    return Conversation(append, read)


async def our_langgraph(place: Place) -> Conversation:
    from recollect.adapters.langgraph import RecollectSaver

    return await _langgraph(place.opened.enter_context(RecollectSaver(place.ours)))


async def their_langgraph_sqlite(place: Place) -> Conversation:
    from langgraph.checkpoint.sqlite import SqliteSaver

    connection = sqlite3.connect(place.theirs, check_same_thread=False)
    place.opened.callback(connection.close)
    return await _langgraph(SqliteSaver(connection))


async def their_langgraph_postgres(place: Place) -> Conversation:
    from langgraph.checkpoint.postgres import PostgresSaver

    saver = place.opened.enter_context(PostgresSaver.from_conn_string(place.url))
    saver.setup()
    return await _langgraph(saver)


async def _agent_framework(history: Any) -> Conversation:
    from agent_framework import Message

    name = uuid.uuid4().hex
    return Conversation(
        lambda: history.save_messages(name, [Message("user", [TEXT])]), lambda: history.get_messages(name)
    )


async def our_agent_framework(place: Place) -> Conversation:
    from recollect.adapters.agent_framework import RecollectHistory

    url = place.url or place.ours_without_fsync
    return await _agent_framework(RecollectHistory(await place.opened.enter_async_context(open_store(url))))


async def their_agent_framework_file(place: Place) -> Conversation:
    from agent_framework import FileHistoryProvider

    return await _agent_framework(FileHistoryProvider(place.folder / "theirs"))


async def their_agent_framework_redis(place: Place) -> Conversation:
    from agent_framework_redis import RedisHistoryProvider

    return await _agent_framework(RedisHistoryProvider(redis_url=place.url, application_id="bench"))


async def _pydantic_ai(conversations: Any) -> Conversation:
    from pydantic_ai.conversation import Conversation as TheirConversation
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    held = TheirConversation(conversation_id=uuid.uuid4().hex, messages=[])

    async def append() -> object:
        held.messages.append(ModelRequest([UserPromptPart(TEXT)]))
        return await conversations.save(held)

    return Conversation(append, lambda: conversations.load(held.conversation_id, limit=MESSAGES_READ))


async def our_pydantic_ai(place: Place) -> Conversation:
    from recollect.adapters.pydantic_ai import RecollectConversations

    store = await place.opened.enter_async_context(open_store(place.ours))
    return await _pydantic_ai(RecollectConversations(store))


async def their_pydantic_ai_memory(place: Place) -> Conversation:
    from pydantic_ai.conversation_store import InMemoryConversationStore

    return await _pydantic_ai(InMemoryConversationStore())


PAIRS: dict[str, tuple[str, Side, Side]] = {
    "openai-agents.sqlite": ("sqlite", our_agents, their_agents_sqlite),
    "openai-agents.redis": ("redis", our_agents, their_agents_redis),
    "openai-agents.postgres": ("postgres", our_agents, their_agents_postgres),
    "adk.sqlite": ("sqlite", our_adk, their_adk_sqlite),
    "adk.redis": ("redis", our_adk, their_adk_redis),
    "adk.postgres": ("postgres", our_adk, their_adk_postgres),
    "langchain.sqlite": ("sqlite", our_langchain, their_langchain_sqlite),
    "langchain.redis": ("redis", our_langchain, their_langchain_redis),
    "langgraph.sqlite": ("sqlite", our_langgraph, their_langgraph_sqlite),
    "langgraph.postgres": ("postgres", our_langgraph, their_langgraph_postgres),
    "agent-framework.sqlite": ("sqlite", our_agent_framework, their_agent_framework_file),
    "agent-framework.redis": ("redis", our_agent_framework, their_agent_framework_redis),
    "pydantic-ai.sqlite": ("sqlite", our_pydantic_ai, their_pydantic_ai_memory),
}


# ---- measuring


class Rate(NamedTuple):
    """Operations a second: by the clock, and of processor time."""

    wall: float
    cpu: float

    @classmethod
    async def of(cls, step: Step, duration_s: float) -> "Rate":
        started, cpu = time.perf_counter(), time.process_time()
        now, count = started, 0
        while now - started < duration_s:
            await step()
            count += 1
            now = time.perf_counter()
        return cls(count / (now - started), count / max(time.process_time() - cpu, 1e-9))


async def _compared(name: str, place: Place, rounds: int, slice_s: float) -> Line:
    engine, ours, theirs = PAIRS[name]
    by_use = {what: [await ours(place), await theirs(place)] for what in ("append", "read")}
    for side in (one for sides in by_use.values() for one in sides):
        for _ in range(MESSAGES_READ):
            await side.append()
    walls: dict[str, list[float]] = {"append": [], "read": []}
    cpus: dict[str, list[float]] = {"append": [], "read": []}
    for number in range(rounds + 1):  # the first warms up
        for what, sides in by_use.items():
            order = sides if number % 2 else sides[::-1]
            rates = {id(side): await Rate.of(getattr(side, what), slice_s) for side in order}
            mine, other = rates[id(sides[0])], rates[id(sides[1])]
            if number:
                walls[what].append(mine.wall / other.wall)
                cpus[what].append(mine.cpu / other.cpu)
    spreads = [Spread.of(ratios[what]) for ratios in (walls, cpus) for what in by_use]
    return Line(name, engine, *spreads)


async def _long_thread(place: Place) -> Spread:
    """The time of a step (put and read) at the end of a thread of a thousand, in times of one at the beginning of
    another. They take turns: what else the machine does meanwhile slows both."""
    from recollect.adapters.langgraph import RecollectSaver

    saver = place.opened.enter_context(RecollectSaver(place.ours))
    long = await _langgraph(saver)
    await _steps(long, STEPS)
    ratios: list[float] = []
    for number in range(ROUNDS_OF_STEPS):
        short = await _langgraph(saver)
        await _steps(short, FULL_AFTER)
        order = (long, short) if number % 2 else (short, long)
        taken = {id(side): await _steps(side, STEPS_AT_ONCE) for side in order}
        ratios.append(taken[id(long)] / taken[id(short)])
    return Spread.of(ratios)


async def _steps(side: Conversation, count: int) -> float:
    """How long that many steps take."""
    started = time.perf_counter()
    for _ in range(count):
        await side.append()
        await side.read()
    return time.perf_counter() - started


@asynccontextmanager
async def _place(engine: str) -> AsyncIterator[Place]:
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="recollect-bench-")))
        url = ""
        if engine != "sqlite":
            started = engines.create(engine, POLICIES[engine])
            opened.callback(started.close)
            url = started.start().url
        async with AsyncExitStack() as connections:
            yield Place(url, folder, connections)


async def _run(names: list[str], rounds: int, slice_s: float) -> dict[str, Any]:
    lines: list[Line] = []
    for name in names:
        try:
            async with _place(PAIRS[name][0]) as place:
                line = await _compared(name, place, rounds, slice_s)
        except ModuleNotFoundError as error:
            print(f"{name:24} left out: {error.name} is not installed here", flush=True)
            continue
        lines.append(line)
        print(
            f"{name:24} append × {_shown(line.append)}, cpu {line.append_cpu.median:.2f}   "
            f"read × {_shown(line.read)}, cpu {line.read_cpu.median:.2f}",
            flush=True,
        )
    threads = {}
    for engine in POLICIES if any(name.startswith("langgraph.") for name in names) else ():
        async with _place(engine) as place:
            threads[engine] = await _long_thread(place)
        print(
            f"langgraph.{engine}: a step at the end of {STEPS:,}: {_shown(threads[engine])} of one at the beginning"
        )
    return {
        "lines": {line.name: asdict(line) for line in lines},
        "long_thread": {engine: spread._asdict() for engine, spread in threads.items()},
    }


def _kept(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    """The results of earlier runs, with those of this one in their places."""
    earlier = json.loads(path.read_text()) if path.exists() else {}
    whole = {part: {**earlier.get(part, {}), **report[part]} for part in report}
    order = list(PAIRS)
    whole["lines"] = dict(sorted(whole["lines"].items(), key=lambda line: order.index(line[0])))
    return whole


def _shown(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", nargs="*", choices=[*PAIRS, []], help="only these pairs")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of the frameworks, about themselves
    # Short ones: the disk and the other processes of a machine change from one moment to the next.
    rounds, slice_s = (10, 0.05) if given.quick else (40, 0.1)
    report = asyncio.run(_run(given.name or list(PAIRS), rounds, slice_s))
    given.output.write_text(json.dumps(_kept(given.output, report), indent=1) + "\n")


if __name__ == "__main__":
    main()
