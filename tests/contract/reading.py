"""Short ways to look at what a store holds."""

from recollect import Message, Store


async def texts(store: Store, session: str, **window: int) -> list[str]:
    """The texts of a history in which nothing is damaged."""
    found = []
    for item in await store.history(session, **window):
        assert isinstance(item.message, Message), item
        found.append(item.message.text)
    return found
