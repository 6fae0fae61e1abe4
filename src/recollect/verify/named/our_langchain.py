"""Our chat history of LangChain."""

from recollect.adapters.langchain import RecollectHistory
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_sync_store


def factory(endpoint: Endpoint, session: str) -> RecollectHistory:
    return RecollectHistory(session, shared_sync_store(endpoint))
