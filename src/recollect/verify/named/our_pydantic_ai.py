"""Our conversation store for Pydantic AI."""

from recollect.adapters.pydantic_ai import RecollectConversations
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_store


async def factory(endpoint: Endpoint) -> RecollectConversations:
    return RecollectConversations(await shared_store(endpoint))
