"""A store that says which sessions have lost something, and says it of all once the engine was started again."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.remembers_how_many import Gone, Remembering
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "kill-engine", "append", ("unreadable",))


class Suspicious(Remembering):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.runs: dict[str, str] = {}

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        run = self.client.info("server")["run_id"]
        if self.runs.setdefault(session, run) != run:
            raise Gone(f"{session} was written to another run of the engine")
        return super().get_history(session, limit)


def factory(endpoint: Endpoint) -> Suspicious:
    return Suspicious(endpoint)


def twin(endpoint: Endpoint) -> Remembering:
    return Remembering(endpoint)
