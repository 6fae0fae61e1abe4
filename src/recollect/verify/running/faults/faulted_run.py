"""What a fault may use of its run, and nothing else.

A fault lets time pass, says when it strikes and heals, kills and starts the engine, makes clients come and go, and may
find that there is nothing to do. It never writes the history itself, and it keeps its own state between its steps (see
`Injection`). `LiveRun` and `Clients` implement this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn, Protocol

from recollect.verify.clock import Clock
from recollect.verify.engines import Endpoint, Engine
from recollect.verify.running.clients import Client
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.workloads import Intent
from recollect.verify.target import pipe


class FaultedClients(Protocol):
    """The clients at work. A fault decides how the next ones start, and which of them end."""

    @property
    def abilities(self) -> frozenset[str]:
        """What the target can do."""

    @property
    def is_async(self) -> bool:
        """Whether its methods are coroutines."""

    impatience: random.Random | None
    """The dice callers throw to decide whether to give up; None: they always wait."""

    @property
    def given_up(self) -> int:
        """Operations whose caller gave up."""

    @property
    def present(self) -> list[Client]: ...

    @property
    def writers(self) -> list[Client]: ...

    def show(self, change: Callable[[Endpoint], Endpoint]) -> None:
        """From the next client on, clients see a changed endpoint: with a proxy in front, or a place for a witness."""

    def obey(self, clock: Clock) -> None:
        """From the next client on, this is their wall clock."""

    def record(self, env: Mapping[str, str] | None) -> None:
        """From the next client on, the clients' own calls are recorded too: an embedded engine lives in them."""

    def hold_tables(self, hold_s: float) -> None:
        """In each client's process, a neighbour of the store keeps the tables of its SQLite file for a while."""

    def kill(self, client: Client) -> None:
        """SIGKILL, in the middle of whatever it does; the outcome of its operation is unknown."""

    def kill_all(self) -> None: ...

    def start_writers(self) -> None:
        """Brings the number of writers back to what the run wants."""

    def start_missing(self) -> None:
        """The same for writers and readers."""

    def start_others(self, spec: str, count: int) -> None:
        """Starts writers of another release beside the present ones; the run is given up if none of them opens."""

    def guest(self) -> Client:
        """A client without a plan of its own, for `FaultedRun.do`."""

    def dismiss(self, guest: Client) -> bool:
        """Ends a guest; False if it was gone already."""


class FaultedRun(Protocol):
    """The run as its fault sees it. The engine is there from `Injection.record` on, its endpoint from `attach` on, and
    clients are at work when the fault strikes."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def folder(self) -> Path:
        """The run's own folder, which outlives the engine's."""

    @property
    def rng(self) -> random.Random:
        """Everything random about the fault comes from here."""

    @property
    def engine(self) -> Engine: ...

    @property
    def engine_is_away(self) -> bool:
        """Whether another fault has killed, stopped or paused it meanwhile, so that it cannot be asked anything."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the engine answers, whatever clients are shown."""

    @property
    def engine_env(self) -> dict[str, str]:
        """What the engine is started with from now on; a fault that adds to it also removes what it added."""

    @property
    def clients(self) -> FaultedClients: ...

    @property
    def written(self) -> int:
        """Messages acknowledged so far."""

    @property
    def retention_s(self) -> float | None:
        """How long memory lives, as the target declares it; None means for ever."""

    def use_engine(self, spec: str) -> None:
        """Uses another version than the scenario's; call it before the engine is made."""

    def at_end(self, undo: Callable[[], None]) -> None:
        """Registers something to undo when the run ends, however it ends."""

    def go_on(self, duration_s: float) -> None:
        """Lets the clients work for a while."""

    def work_on(self, duration_s: float) -> None:
        """The same, but stops as soon as nobody has anything left to do."""

    def settle(self, quiet_s: float = ...) -> None:
        """Waits until nothing is under way, then leaves the engine alone for a moment."""

    def striking(self, name: str, detail: str = "", offset_s: float = 0.0) -> AbstractContextManager[None]:
        """Records that the fault is injected, and, when the block ends, that it is healed. `offset_s` is how far the
        engine's clock is moved meanwhile."""

    def struck_further(self, name: str, detail: str, offset_s: float) -> None:
        """Records that a fault that is striking now moves the engine's clock to another offset."""

    def kill_engine(self, kill: Callable[[], None] | None = None, since: float | None = None) -> None:
        """Kills all its processes at once, or what `kill` kills of them; an embedded engine dies with the clients it
        lives in. `since` is the monotonic time since which it has been paused, if it is."""

    def syncs_took(self, longest_s: float) -> None:
        """The longest sync of the engine that was recorded: a promise may depend on it."""

    def stop_engine(self) -> None:
        """Stops it cleanly."""

    def start_engine(self, start: Callable[[], Endpoint] | None = None) -> None:
        """Starts it again on its own data, or by `start`; if it refuses, the run ends with that as a finding."""

    def close_clients(self) -> None:
        """Waits until nothing is under way, and closes all clients cleanly."""

    def restart_clients(self) -> None:
        """Closes all clients cleanly and opens new ones, which see the endpoint as it is now."""

    def do(
        self, guest: Client, intent: Intent, on_line: Callable[[str], None] | None = None
    ) -> pipe.Reply | None:
        """One operation by a guest, while the others keep working; None if the guest did not survive it.

        `on_line` is called when the guest stops at a line of the store's code; the guest goes on when it returns.
        """

    def remark(self, text: str) -> None:
        """Notes for the report how far the fault got."""

    def give_up(self, reason: str) -> NoReturn:
        """Ends a run from which nothing can be concluded."""

    def skip(self, reason: str) -> NoReturn:
        """Ends a run whose scenario cannot happen here, as only the running target or engine could tell."""
