"""Drives the clients: asks each of them what its plan says next, hears what comes back, and ends what hangs.

It works in the run's one thread: what it has not received was not acknowledged. Before a fault is recorded, `drain`
reads whatever has already arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from recollect.verify.running.clients import Client, Clients
from recollect.verify.running.notes import Notes, RunStopped
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import CALLED, AppendTurn, Intent, Plan, ReadBack, reads
from recollect.verify.target import pipe
from recollect.verify.target.workers import TargetBroken, WorkerDied

OPERATION_TIMEOUT_S = 15.0
"""An operation that takes longer hangs: its client is killed, and the outcome is unknown."""

SETTLE_TIMEOUT_S = 20.0
QUIET_S = 0.05
_GLANCE_S = 0.02
OLDER_TIMEOUT_S = 3.0
FINAL_HANGS_MAX = 2
"""Final reads that may hang before the rest is left unread: a cell has to end in time to say what hangs."""

DEATHS_MAX = 5
"""Processes that the target itself may end before the run is given up."""


GIVEN_UP_SHARE = 0.4
"""The share of operations that a caller gives up on, while callers do so."""
LATEST_SHARE = 1.3
"""The latest moment to give up, as a share of what an operation usually takes: some callers are too late, and some
give up just as the reply arrives."""


class Driver:
    """Lets time pass for the clients of one run."""

    def __init__(
        self,
        clients: Clients,
        transcript: Transcript,
        notes: Notes,
        *,
        ops_max: int | None = None,
        turn_max: int | None = None,
    ) -> None:
        self._clients = clients
        self._transcript = transcript
        self._notes = notes
        self._ops_max = ops_max
        self._turn_max = turn_max
        self.operations = 0
        """How many operations have been asked for."""
        self.hung: str | None = None
        """The first one that hung."""

    @property
    def writes_on(self) -> bool:
        """Whether any writer has not finished its plan."""
        return any(client.writer and not client.ended for client in self._clients.present)

    # ---- time passing

    def go_on(self, duration_s: float) -> None:
        """Lets the clients work for a while."""
        end = time.monotonic() + duration_s
        while (left_s := end - time.monotonic()) > 0:
            for client in self._clients.present:
                if client in self._clients and client.intent is None and not client.ended:
                    self._ask(client)
            self._hear_or_check(left_s)

    def work_on(self, duration_s: float) -> None:
        """The same, but stops as soon as nobody has anything left to do: a run of a few operations ends with them."""
        end = time.monotonic() + duration_s
        while (left_s := end - time.monotonic()) > 0 and self._busy:
            self.go_on(min(left_s, _GLANCE_S))

    @property
    def _busy(self) -> bool:
        return any(client.intent is not None or not client.ended for client in self._clients.present)

    def settle(self, quiet_s: float = QUIET_S) -> None:
        """Waits until nothing is under way, then leaves the engine alone for a moment."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while self._waiting:
            self._hear_or_check(0.1)
            if time.monotonic() > end:
                for client in self._waiting:
                    self._hung(client)
        time.sleep(quiet_s)

    def await_older(self, than: float) -> None:
        """Waits for what was asked before the engine stopped. It may have been done by then, and a late
        acknowledgement of it does not belong after the healing."""
        end = time.monotonic() + OLDER_TIMEOUT_S
        while time.monotonic() < end and any(client.since < than for client in self._waiting):
            self.go_on(0.01)

    def drain(self) -> None:
        """Takes whatever has already arrived."""
        while self._hear(0.0):
            pass

    def do(
        self, guest: Client, intent: Intent, on_line: Callable[[str], None] | None = None
    ) -> pipe.Reply | None:
        """One operation by a guest, while the others keep working; None if the guest did not survive it.

        `on_line` is called when the guest stops at a line of the store's code; the guest goes on when it returns.
        """
        request = self._transcript.begin(guest.number, intent)
        guest.intent, guest.since, guest.last_reply = intent, time.monotonic(), None
        guest.worker.send(request)
        while guest.intent is not None and guest in self._clients:
            self._hear_or_check(0.1)
            # Here, and not in `_take`: what a fault does at a line listens to clients itself.
            if guest.at_line is not None and on_line is not None:
                line, guest.at_line = guest.at_line, None
                on_line(line)
                guest.worker.go_on()
        return guest.last_reply

    def read_everything(self, *, ends: bool) -> None:
        """Reads every session that was written to, from a process that has never seen them; with `ends`, the end of
        each as well.

        If a session brings its reader down, another reader continues with the next session.
        """
        left = list(self._transcript.sessions)
        hangs_max = len(self._notes.hangs) + FINAL_HANGS_MAX
        for _ in range(DEATHS_MAX):
            if not left or len(self._notes.hangs) >= hangs_max:
                return
            worker = self._clients.launch()
            try:
                reader = self._clients.admit(worker, lambda planner: self._final_reads(left, ends))
            except TargetBroken as broken:
                # A store that refuses to open is loud about its loss: every session is unreadable.
                for session in left:
                    self._transcript.refused_read(worker.number, session, str(broken))
                return
            while not reader.ended and reader in self._clients:
                if reader.intent is None:
                    self._ask(reader)
                else:
                    self._hear_or_check(0.5)

    def _final_reads(self, left: list[str], ends: bool) -> Plan:
        """A session is taken off the list before it is read."""
        while left:
            session = left.pop(0)
            for last in (None, 20) if ends else (None,):
                yield ReadBack(session, last=last)
            if self._clients.searches(session):
                yield pipe.SearchIndex(session)

    # ---- asking and hearing

    @property
    def _waiting(self) -> list[Client]:
        """Those that were asked something and have not answered."""
        return [client for client in self._clients.present if client.intent is not None]

    def _ask(self, client: Client) -> None:
        if self._ops_max is not None and client.writer and client.steps >= self._ops_max:
            client.ended = True
            return
        retry = self._transcript.retry_of(client.number)
        try:
            if retry is None:
                outcome, plan = client.last_outcome, client.plan
                intent = self._cut(next(plan) if outcome is None else plan.send(outcome))
                request = self._transcript.begin(client.number, intent)
            else:
                intent, request = retry
        except StopIteration:
            client.ended = True
            return
        client.intent, client.since, client.steps = intent, time.monotonic(), client.steps + 1
        self.operations += 1
        try:
            self._maybe_give_up(client)
            client.worker.send(request)
        except WorkerDied as death:
            self._died(client, str(death))

    def _maybe_give_up(self, client: Client) -> None:
        """Says, ahead of the request, that the caller will not wait for its end."""
        rng = self._clients.impatience
        if rng is not None and rng.random() < GIVEN_UP_SHARE:
            client.worker.send(pipe.GiveUp(rng.random() * LATEST_SHARE))

    def _cut(self, intent: Intent) -> Intent:
        """The turn, cut to the number of messages that the run allows in one."""
        if self._turn_max is None or not isinstance(intent, AppendTurn):
            return intent
        beside = tuple(replace(part, bodies=part.bodies[: self._turn_max]) for part in intent.beside)
        return replace(intent, bodies=intent.bodies[: self._turn_max], beside=beside)

    def _hear_or_check(self, timeout_s: float) -> None:
        if not self._hear(timeout_s):
            self._check_hangs()

    def _hear(self, timeout_s: float) -> bool:
        heard = False
        for client in self._clients.speaking(timeout_s):
            self._take(client)
            heard = True
        return heard

    def _take(self, client: Client) -> None:
        try:
            reply = client.worker.receive()
        except WorkerDied as death:
            self._died(client, str(death))
            return
        if isinstance(reply, pipe.AtLine):
            client.at_line = reply.line
            return
        assert client.intent is not None
        client.last_reply = reply
        self._clients.given_up += isinstance(reply, pipe.Failed) and reply.given_up
        client.last_outcome = self._transcript.end(client.number, client.intent, reply)
        client.intent = None

    # ---- what goes wrong with them

    def _died(self, client: Client, how: str) -> None:
        if client not in self._clients:
            return  # it died together with another caller in its process
        if client.intent is not None and client.worker.crashed and not client.doomed and reads(client.intent):
            # What it was asked to read brought it down: to a reader, that is a failure.
            self._transcript.end(client.number, client.intent, pipe.Failed("fail", how))
            client.intent = None
        self._clients.kill(client)
        if client.doomed:
            return
        self._notes.deaths.append(how)
        if len(self._notes.deaths) > DEATHS_MAX:
            raise RunStopped(f"{how}, {len(self._notes.deaths)} times")
        if client.writer:
            self._clients.start_writers()

    def _check_hangs(self) -> None:
        for client in self._waiting:
            if time.monotonic() - client.since > OPERATION_TIMEOUT_S:
                self._hung(client)

    def _hung(self, client: Client) -> None:
        if client not in self._clients:
            return
        what = f"{CALLED[type(client.intent)]} took longer than {OPERATION_TIMEOUT_S:g} s"
        self._notes.hangs.append(what)
        self.hung = self.hung or what
        self._clients.kill(client)
        if client.writer and len(self._notes.hangs) <= DEATHS_MAX:
            self._clients.start_writers()
