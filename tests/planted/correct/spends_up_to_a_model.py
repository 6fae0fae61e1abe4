"""As many of the latest messages as fit into a budget, which cannot be more than the model takes."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.correct.spends_tokens import SpendsTokens

CELLS = (Cell("redis", "aof-always", "none", "trimmed", {"variant": "one-writer"}),)


class SpendsUpToAModel:
    def __init__(self, endpoint: Endpoint) -> None:
        self._store = SpendsTokens(endpoint)
        self.append_message = self._store.append_message

    def get_messages(self, session: str, max_context_tokens: int = 500) -> list[Any]:
        if max_context_tokens > 128_000:
            raise ValueError(f"the model takes 128,000 tokens, and not {max_context_tokens:,}")
        return self._store.get_messages(session, max_context_tokens)


def factory(endpoint: Endpoint) -> SpendsUpToAModel:
    return SpendsUpToAModel(endpoint)
