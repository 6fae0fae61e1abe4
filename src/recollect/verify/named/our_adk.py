"""Our session service for the Agent Development Kit."""

from recollect.adapters.adk import RecollectSessionService
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_store


async def factory(endpoint: Endpoint) -> RecollectSessionService:
    return RecollectSessionService(await shared_store(endpoint))
