"""A run on older data: the store reads what should be there, goes on writing, and reads all of it again.

What `--expect` lists is recorded as acknowledged before the run; starting on the data is the disturbance. So the
usual checkers judge it: a session that comes back empty, a text that changed, a different order.

The steps: copy the data and start the engine on the copy, read every listed session from a fresh process, append a turn
to each (up to `APPENDED_MAX`) and to a new session, restart the engine, read everything again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from recollect.verify.engines import Endpoint, EngineError
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host import folder as run_folder
from recollect.verify.judging.evidence import OLDER_DATA
from recollect.verify.running import engine_inspection, older_data, older_sessions
from recollect.verify.running.driver import Driver
from recollect.verify.running.notes import RunStopped
from recollect.verify.running.older_data import BadData, OlderData
from recollect.verify.running.older_sessions import Sessions
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import AppendTurn, Body, Intent, ReadBack, SaveBack

APPENDED_MAX = 100
"""Sessions that are appended to, so that a large dump takes minutes and not hours."""
NEW_SESSION = "recollect-older-data"


class OlderDataRun(Run):
    """From a scenario with `data` and `expect` to a verdict."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        progress: Callable[[str], None] = lambda step: None,
        preload: tuple[str, ...] = (),
    ) -> None:
        plain = msgspec.structs.replace(scenario, fault="none", variant="", workload="append")
        super().__init__(plain, folder, progress=progress, preload=preload or scenario.modules)
        self.scenario = scenario
        self._data: OlderData
        self._expected: Sessions
        self._endpoint: Endpoint
        """The engine, and the database of it that the store gets."""

    def _start(self) -> tuple[Transcript, Driver]:
        self._progress("copying")
        self._data = older_data.recognise(Path(self.scenario.data or ""))
        self._expected = older_sessions.load(Path(self.scenario.expect or ""))
        place = cluster.workspace(run_folder.current(), "older-data")
        self._live.at_end(lambda: run_folder.discard(place))
        data = place / "data"
        copied = self._data.format.load is None
        if copied:
            data.mkdir(0o700)
            try:
                self._data.format.copy(self._data.path, data)
            except OSError as error:
                raise BadData(f"--data {self._data.path} cannot be copied: {error}") from None
        self._progress("starting")
        self._live.make_engine(data if copied else None)
        try:
            self._live.first_start()
        except EngineError as refusal:
            raise BadData(f"--data {self._data.path}: {refusal}") from None
        if self._data.format.load is not None:
            self._data.format.load(self._live.engine, self._data.path, place)
        self._choose_database()
        self.engine_version, self.provider = self._live.engine.version, self._live.engine.provider
        first, ready = self._clients.open_first()
        return self._begin(first, ready)

    def _choose_database(self) -> None:
        """The data folder of a server may have its memory in a database of its own."""
        engine = self._live.engine
        self._endpoint = engine.endpoint
        if not isinstance(engine, PostgresEngine) or self._data.format.load is not None:
            return
        asked = "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres' ORDER BY 1"
        names = [str(row[0]) for row in engine.ask(asked)]
        if len(names) > 1:
            raise BadData(
                f"--data {self._data.path} has the databases {', '.join(names)}; give a pg_dump of the one to read"
            )
        if names:
            self._endpoint = _in_database(engine.endpoint, names[0])
            self._clients.show(lambda endpoint: _in_database(endpoint, names[0]))

    # ---- the phases

    def _work(self, transcript: Transcript, driver: Driver) -> None:
        past = self._clients.number()
        for session, messages in self._expected.items():
            for message in messages:
                transcript.was_kept(past, session, message.text, message.role)
        with self._live.striking(OLDER_DATA, self._data.format.called):
            pass
        self._progress("reading")
        driver.read_everything(ends=False)
        if transcript.saw_nothing:
            self._check_that_it_belongs()
        self._progress("appending")
        transcript.blames_writes = True  # one writer, and nothing is broken
        for session in [*list(self._expected)[:APPENDED_MAX], NEW_SESSION]:
            self._append(driver, session)
        transcript.blames_writes = False
        driver.settle()
        self._progress("restarting")
        with self._live.striking(OLDER_DATA, "restarted"):
            self._live.stop_engine()
            self._live.start_engine()
        self._progress("reading")
        driver.read_everything(ends=False)

    def _check_that_it_belongs(self) -> None:
        """If the engine itself holds nothing of what is listed, the store is not to blame: it is another memory's
        list."""
        texts = [message.text for messages in self._expected.values() for message in messages]
        if engine_inspection.holds_none_of(texts, self._data.format.engine, self._endpoint):
            raise BadData(
                f"--expect {self.scenario.expect} does not match --data {self._data.path}: the store finds none of the "
                f"{len(texts)} listed messages, and nothing that the engine holds looks like one of them"
            )

    def _append(self, driver: Driver, session: str) -> None:
        guest = next(iter(self._clients.writers), None)
        if guest is None:
            raise RunStopped("the store ended its process, and no other could be started")
        bodies = (Body("and what did I say yesterday?"), Body("it is all still here"))[
            : 2 if "batches" in self._clients.abilities else 1
        ]
        intents: list[Intent] = [AppendTurn(session, bodies)]
        if "whole-list" in self._clients.abilities:
            intents = [ReadBack(session), SaveBack(session, bodies)]
        for intent in intents:
            driver.do(guest, intent)


def _in_database(endpoint: Endpoint, name: str) -> Endpoint:
    def moved(url: str | None) -> str | None:
        return None if url is None else urlunsplit(urlsplit(url)._replace(path=f"/{name}"))

    return replace(endpoint, url=moved(endpoint.url) or "", socket_url=moved(endpoint.socket_url))
