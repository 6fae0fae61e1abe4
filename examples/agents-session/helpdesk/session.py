"""The help desk's session for the OpenAI Agents SDK: SQLite, and no item twice."""

from agents import SQLiteSession
from agents.items import TResponseInputItem


class TidySession(SQLiteSession):
    """A run that is tried again adds its input again. This session keeps one of each."""

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        tidy: list[TResponseInputItem] = []
        for item in [*await self.get_items(), *items]:
            if item not in tidy:
                tidy.append(item)
        await self.clear_session()
        await super().add_items(tidy)
