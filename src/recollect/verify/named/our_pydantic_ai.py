"""Our conversation store of Pydantic AI, driven as its documentation does it: load, run, save; on a conflict again."""

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, UserPromptPart

from recollect.adapters.pydantic_ai import RecollectConversations
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import shared_store


class SavedConversations:
    """One message for each run. A conflict means that nothing was saved, so the run is done again on what is there."""

    def __init__(self, conversations: RecollectConversations) -> None:
        self._conversations = conversations

    async def append_message(self, session: str, message: str) -> None:
        while True:
            loaded = await self._conversations.load(session, limit=1)
            conversation = loaded or Conversation(conversation_id=session)
            conversation.messages.append(ModelRequest(parts=[UserPromptPart(message)]))
            try:
                await self._conversations.save(conversation)
            except ConversationConflict:
                continue
            return

    async def get_messages(self, session: str) -> list[str]:
        loaded = await self._conversations.load(session)
        return [] if loaded is None else [str(message.parts[0].content) for message in loaded.messages]


async def factory(endpoint: Endpoint) -> SavedConversations:
    return SavedConversations(RecollectConversations(await shared_store(endpoint)))
