"""What the engine and the target said, kept in the run's folder without anybody's credentials."""

from __future__ import annotations

from pathlib import Path

from recollect import private
from recollect.secret import Scrubber, SecretUrl
from recollect.verify.engines import Attached, Engine
from recollect.verify.engines.endpoint import Endpoint

ENGINE_LOG = "engine.log"
TARGET_LOG = "target.log"
LOG_LINES_MAX = 200
"""Lines kept from each start of the engine."""


def scrubber_of(url: SecretUrl | None, endpoint: Endpoint | None) -> Scrubber:
    """Removes the credentials of the given address and of the engine, whose configuration may have set a password."""
    known = () if endpoint is None else (endpoint.url, endpoint.socket_url, *endpoint.replicas)
    return Scrubber((url, *known))


def keep_engine_log(engine: Engine | Attached, folder: Path, scrub: Scrubber) -> None:
    """What it said since its last start; a run has several starts."""
    with private.artifact(folder / ENGINE_LOG, "ab") as log:
        log.write(f"{scrub(engine.logs(LOG_LINES_MAX))}\n".encode("utf-8", "surrogateescape"))


def conceal(log: Path, scrub: Scrubber) -> None:
    """Takes the credentials out of the target's log, once nobody writes to it."""
    if scrub and log.exists():
        said = log.read_text("utf-8", "surrogateescape")
        private.write_artifact(log, scrub(said))
