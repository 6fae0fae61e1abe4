"""Our session of the OpenAI Agents SDK."""

from recollect.adapters.openai_agents import RecollectSession
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_store


async def factory(endpoint: Endpoint, session: str) -> RecollectSession:
    return RecollectSession(session, await shared_store(endpoint))
