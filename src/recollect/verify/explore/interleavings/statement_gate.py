"""A gate for one client's SQLite statements: each is held until it is chosen (see `target.held_statements`).

The same to the scheduler as a gate in front of a server, except that the client itself executes what is let through. A
statement that finds the file locked stands at the gate again, and is not let through before somebody else has moved:
who of several gets the lock is our choice, not SQLite's.
"""

from __future__ import annotations

import contextlib
import json
import select
import selectors
import socket
from dataclasses import dataclass

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.dialogues import Dialogue, SentRequest
from recollect.verify.explore.interleavings.footprints import ROWS, of_sqlite
from recollect.verify.explore.interleavings.gate import Gate, GatedLink
from recollect.verify.target.held_statements import VARIABLE


class StatementDialogue(Dialogue):
    framed = True

    def __init__(self) -> None:
        self._has_lock = self._takes_lock = False
        """Whether its transaction has the file's lock, and whether it will once the statement has run."""

    def whole(self, data: bytes) -> bool:
        return data.endswith(b"\n")

    def request(self, data: bytes) -> SentRequest:
        asked = json.loads(data)
        sql = " ".join(asked["sql"].split())
        self.error = ""
        inside = asked["in_transaction"]
        self._has_lock = self._has_lock and inside
        touched = of_sqlite(sql, in_transaction=inside, has_lock=self._has_lock)
        self._takes_lock = (ROWS, True) in touched and ("db", True) not in touched
        return SentRequest(sql[:60], touched)

    def reply(self, data: bytes) -> bool:
        self.error = json.loads(data)["error"]
        self._has_lock = self._has_lock or (self._takes_lock and not self.error)
        return True


@dataclass(eq=False)
class StatementLink(GatedLink):
    """One connection of a client to the file."""

    _heard: bytes = b""

    def read_client(self) -> bool:
        if self.in_engine:
            return True  # what it says now is for `hear`
        return super().read_client()

    def send(self) -> SentRequest:
        return self._answer(b"go\n")

    def _answer(self, word: bytes) -> SentRequest:
        self.asked = bytes(self.out)
        self.out.clear()
        self._looked = (0, False, None)
        self.request = self.dialogue.request(self.asked)
        self.in_engine, self.is_held_back, self._heard = True, False, b""
        self.sent += 1
        self._say(word)
        return self.request

    def stop(self) -> None:
        """Nobody will give the lock back: it gets the error that it would get when its patience ends."""
        self._answer(b"stop\n")

    def hear(self) -> bool:
        while not self._heard.endswith(b"\n") and select.select([self.client], [], [], 0)[0]:
            data = b""
            with contextlib.suppress(OSError):
                data = self.client.recv(1 << 16)
            if not data:
                self.in_engine = False
                return True
            self._heard += data
        if not self._heard.endswith(b"\n"):
            return False
        self.in_engine = False
        if self._heard == b"busy\n":
            self.is_held_back = True
            self.out += self.asked
        else:
            self.dialogue.reply(self._heard)
            self.answer += self._heard
        return True

    def fileno(self) -> int:
        return self.client.fileno()

    def forward(self) -> None:
        if not self.is_held_back:
            self._say(b"on\n")
        self.answer.clear()

    def _say(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            self.client.sendall(line)


class StatementGate(Gate):
    """One client's way to the file."""

    @property
    def shown(self) -> Endpoint:
        return self._endpoint

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self._listener.getsockname()[1])}

    def _linked(self, client: socket.socket) -> GatedLink:
        return StatementLink(client, client, StatementDialogue())


def gate_for(endpoint: Endpoint, selector: selectors.BaseSelector) -> Gate:
    return StatementGate(endpoint, selector) if endpoint.port is None else Gate(endpoint, selector)
