"""Our history of Agent Framework, driven as an agent does it: read before a run, saved after it."""

from agent_framework import Message

from recollect.adapters.agent_framework import RecollectHistory
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_store


class SavedRuns:
    """One message for each run."""

    def __init__(self, history: RecollectHistory) -> None:
        self._history = history

    async def append_message(self, session: str, message: str) -> None:
        await self._history.save_messages(session, [Message("user", [message])])

    async def get_messages(self, session: str) -> list[str]:
        return [message.text for message in await self._history.get_messages(session)]


async def factory(endpoint: Endpoint) -> SavedRuns:
    return SavedRuns(RecollectHistory(await shared_store(endpoint)))
