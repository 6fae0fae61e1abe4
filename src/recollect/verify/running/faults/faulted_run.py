"""What a fault may use of the run that it happens in; nothing else of the run is its business.

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
    """What callers throw to decide whether they give up; None: they wait."""

    @property
    def given_up(self) -> int:
        """Operations whose caller gave up."""

    @property
    def present(self) -> list[Client]: ...

    @property
    def writers(self) -> list[Client]: ...

    def show(self, change: Callable[[Endpoint], Endpoint]) -> None:
        """From the next client on, the endpoint looks different to them: a proxy in front, a witness beside."""

    def obey(self, clock: Clock) -> None:
        """From the next client on, this is their wall clock."""

    def record(self, env: Mapping[str, str] | None) -> None:
        """From the next client on, their own calls are recorded too: an embedded engine lives in them."""

    def kill(self, client: Client) -> None:
        """SIGKILL, in the middle of whatever it does; what it was asked has no outcome."""

    def kill_all(self) -> None: ...

    def start_writers(self) -> None:
        """Brings the number of writers back to what the run wants."""

    def start_missing(self) -> None:
        """The same of writers and readers."""

    def start_others(self, spec: str, count: int) -> None:
        """Writers of another release, beside those that are there; the run is given up if none of them opens."""

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
        """The run's own, which outlives the engine's."""

    @property
    def rng(self) -> random.Random:
        """Everything random about the fault comes from here."""

    @property
    def engine(self) -> Engine: ...

    @property
    def endpoint(self) -> Endpoint:
        """Where the engine answers, whatever clients are shown."""

    @property
    def engine_env(self) -> dict[str, str]:
        """The engine is started with it from now on; a fault adds to it, and takes back what it added."""

    @property
    def clients(self) -> FaultedClients: ...

    @property
    def written(self) -> int:
        """Messages acknowledged so far."""

    def use_engine(self, spec: str) -> None:
        """Another version than the scenario's: before the engine is made."""

    def at_end(self, undo: Callable[[], None]) -> None:
        """Something to undo when the run ends, however it ends."""

    def go_on(self, duration_s: float) -> None:
        """Lets the clients work for a while."""

    def work_on(self, duration_s: float) -> None:
        """The same, and no longer than anybody has something to do."""

    def settle(self, quiet_s: float = ...) -> None:
        """Waits until nothing is under way, then leaves the engine alone for a moment."""

    def striking(self, name: str, detail: str = "", offset_s: float = 0.0) -> AbstractContextManager[None]:
        """Records that the fault is injected, and, when the block ends, that it is healed. `offset_s` is how far the
        engine's clock is moved meanwhile."""

    def kill_engine(self) -> None:
        """The sudden death of all of its processes; an embedded one dies with the clients that it lives in."""

    def stop_engine(self) -> None:
        """In good order."""

    def start_engine(self, start: Callable[[], Endpoint] | None = None) -> None:
        """Starts it again on its own data, or as `start` does; an engine that refuses ends the run, as a finding."""

    def restart_clients(self) -> None:
        """Closes all clients in good order and opens new ones, which see the endpoint as it is now."""

    def do(
        self, guest: Client, intent: Intent, on_line: Callable[[str], None] | None = None
    ) -> pipe.Reply | None:
        """One operation by a guest, while the others answer; None if it did not survive it.

        `on_line` is called when the guest stands on a line of the store's code, and the guest goes on after it.
        """

    def remark(self, text: str) -> None:
        """How far the fault got, for the report."""

    def give_up(self, reason: str) -> NoReturn:
        """Nothing can be concluded from this run."""

    def skip(self, reason: str) -> NoReturn:
        """What the scenario asks for does not exist here, as only the running target or engine could tell."""
