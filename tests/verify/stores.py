"""Stores of every shape the kit knows, in memory: enough to see how it drives them."""

import enum
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recollect.verify.engines.endpoint import Endpoint

KEPT: dict[str, list[Any]] = {}


@dataclass
class ChatMessage:
    role: str
    content: str
    timestamp: float


class Articles:
    """append_message with a class of its own, get_history with a limit by default."""

    def append_message(self, session: str, message: ChatMessage) -> None:
        assert isinstance(message, ChatMessage)
        KEPT.setdefault(session, []).append(message)

    def get_history(self, session: str, limit: int = 10) -> list[ChatMessage]:
        return KEPT.get(session, [])[-limit:]


class Strings:
    async def append_message(self, session: str, message: str) -> None:
        KEPT.setdefault(session, []).append(message)

    async def get_messages(self, session: str) -> list[str]:
        return KEPT.get(session, [])


class Speaker(enum.Enum):
    HUMAN = "human"
    AI = "ai"


class Apart:
    """Role and text as two arguments, in an order of its own; a read has to say how many it wants."""

    def add(self, role: Speaker, text: str, *, user_id: str) -> None:
        KEPT.setdefault(user_id, []).append((role.value, text))

    def recent(self, user_id: str, n: int) -> list[Any]:
        return KEPT.get(user_id, [])[-n:]


class Yielding(Apart):
    async def recent(self, user_id: str, n: int) -> AsyncIterator[Any]:  # type: ignore[override]
        for one in super().recent(user_id, n):
            yield one


class InConversations(Apart):
    def recent(self, user_id: str, n: int) -> Any:
        return {"user": user_id, "said": super().recent(user_id, n)}


class InObjects(Apart):
    def recent(self, user_id: str, n: int) -> Any:
        return SimpleNamespace(user=user_id, messages=super().recent(user_id, n))


class Lines(Apart):
    def recent(self, user_id: str, n: int) -> Any:
        names = {"human": "user", "ai": "assistant"}
        return [f"{names[role]}: {text}" for role, text in super().recent(user_id, n)]


class ApartOfSession:
    def __init__(self, session: str) -> None:
        self.session = session

    async def add_message(self, role: str, content: str) -> None:
        KEPT.setdefault(self.session, []).append({"role": role, "content": content})

    async def get_messages(self, limit: int = 5) -> list[Any]:
        return KEPT.get(self.session, [])[-limit:]


class WholeList:
    def save(self, session: str, messages: list[Any]) -> None:
        KEPT[session] = list(messages)

    def load(self, session: str) -> list[Any]:
        return KEPT.get(session, [])


class Agents:
    def __init__(self, session: str) -> None:
        self.session = session

    async def add_items(self, items: list[Any]) -> None:
        KEPT.setdefault(self.session, []).extend(items)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = KEPT.get(self.session, [])
        return items if limit is None else items[-limit:]


class Shapeless:
    def remember(self, text: str) -> None: ...


class Boastful(Articles):
    traits = ("never_wrong",)


class Vague(Articles):
    retention_s = "a week"


def boastful(endpoint: Endpoint) -> Boastful:
    return Boastful()


def vague(endpoint: Endpoint) -> Vague:
    return Vague()


def articles(endpoint: Endpoint) -> Articles:
    return Articles()


async def strings(endpoint: Endpoint) -> Strings:
    return Strings()


def apart(endpoint: Endpoint) -> Apart:
    return Apart()


def yielding(endpoint: Endpoint) -> Yielding:
    return Yielding()


def in_conversations(endpoint: Endpoint) -> InConversations:
    return InConversations()


def in_objects(endpoint: Endpoint) -> InObjects:
    return InObjects()


def lines(endpoint: Endpoint) -> Lines:
    return Lines()


def apart_of_session(endpoint: Endpoint, session_id: str) -> ApartOfSession:
    return ApartOfSession(session_id)


def whole_list(endpoint: Endpoint) -> WholeList:
    return WholeList()


def agents(endpoint: Endpoint, session: str) -> Agents:
    return Agents(session)


def shapeless(endpoint: Endpoint) -> Shapeless:
    return Shapeless()


def returns_nothing(endpoint: Endpoint) -> None:
    Shapeless()


def raises(endpoint: Endpoint) -> None:
    raise RuntimeError("no database configured")


def hangs(endpoint: Endpoint) -> Articles:
    return Hanging()


class Hanging(Articles):
    def append_message(self, session: str, message: ChatMessage) -> None:
        import time

        time.sleep(3600)


def noisy(endpoint: Endpoint) -> Articles:
    print("\x00\x01 garbage {]} on standard output " * 100)
    return Articles()


def suicidal(endpoint: Endpoint) -> Articles:
    return Suicidal()


def ends_at_once(endpoint: Endpoint) -> Articles:
    os.kill(os.getpid(), signal.SIGKILL)
    return Articles()


class Suicidal(Articles):
    def append_message(self, session: str, message: ChatMessage) -> None:
        import os

        os._exit(7)


not_callable = 42


class InFile:
    """Lines of a file, as other processes see them too."""

    def __init__(self, endpoint: Endpoint) -> None:
        assert endpoint.path is not None
        self._folder = endpoint.path if endpoint.path.is_dir() else endpoint.path.parent

    def append_message(self, session: str, message: str) -> None:
        with (self._folder / f"{session}.txt").open("a") as file:
            file.write(message + "\n")

    def get_history(self, session: str) -> list[str]:
        file = self._folder / f"{session}.txt"
        whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
        return whole.splitlines()  # a line that crosses a page can be read when only half of it is there


def in_file(endpoint: Endpoint) -> InFile:
    return InFile(endpoint)


class DiesReading(InFile):
    """Reads until there is a certain session, then ends its process: the final reads meet it."""

    def get_history(self, session: str) -> list[str]:
        import os

        if session == "session-1":
            os._exit(9)
        return super().get_history(session)


def dies_reading(endpoint: Endpoint) -> DiesReading:
    return DiesReading(endpoint)


class NeverCloses(InFile):
    def close(self) -> None:
        import time

        time.sleep(3600)


def never_closes(endpoint: Endpoint) -> NeverCloses:
    return NeverCloses(endpoint)


class SlowToSay:
    """Stores a message at once, and says so late."""

    def __init__(self, url: str) -> None:
        import redis

        self._redis = redis.Redis.from_url(url, decode_responses=True)

    def append_message(self, session: str, message: str) -> None:
        import time

        self._redis.rpush(session, message)
        time.sleep(0.3)

    def get_history(self, session: str) -> list[str]:
        return [str(record) for record in self._redis.lrange(session, 0, -1)]


def slow_to_say(endpoint: Endpoint) -> SlowToSay:
    return SlowToSay(endpoint.url)


class Refused:
    """Every third append meets a refusal of the engine: at its only command, or after the message is stored."""

    def __init__(self, url: str, *, first: bool) -> None:
        import redis

        self._redis = redis.Redis.from_url(url, decode_responses=True)
        self._redis.set("a string", "and no list")
        self._first = first
        self._appends = 0

    def append_message(self, session: str, message: str) -> None:
        self._appends += 1
        refused = self._appends % 3 == 0
        if not (refused and self._first):
            self._redis.rpush(session, message)
        if refused:
            self._redis.rpush("a string", message)

    def get_history(self, session: str) -> list[str]:
        return [str(record) for record in self._redis.lrange(session, 0, -1)]


def first_refused(endpoint: Endpoint) -> Refused:
    return Refused(endpoint.url, first=True)


def second_refused(endpoint: Endpoint) -> Refused:
    return Refused(endpoint.url, first=False)


class Leaving(InFile):
    """Starts a process of its own with its first message, and never ends it."""

    def __init__(self, endpoint: Endpoint, folder: str) -> None:
        super().__init__(endpoint)
        self._pids = Path(folder)
        self._started = False

    def append_message(self, session: str, message: str) -> None:
        super().append_message(session, message)
        if not self._started:
            self._started = True
            left = subprocess.Popen(["sleep", "600"], start_new_session=True)
            with (self._pids / f"{os.getpid()}.pids").open("w") as file:
                file.write(f"{left.pid}\n")
