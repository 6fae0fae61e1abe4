"""One writer process: appends turns to one session, and prints each acknowledged turn.

Usage: python appender.py URL SESSION WRITER TURNS
"""

import asyncio
import sys

from recollect import Message, NotWritten, OutcomeUnknown, Receipt, Store, open_store


async def append(store: Store, session: str, turn: str) -> Receipt:
    messages = [Message("user", f"{turn}:question"), Message("assistant", f"{turn}:answer")]
    while True:
        try:
            return await store.append(session, messages, turn=turn)
        except (NotWritten, OutcomeUnknown):
            continue


async def main(url: str, session: str, writer: str, turns: int) -> None:
    async with open_store(url, timeout_s=30.0) as store:
        for number in range(turns):
            receipt = await append(store, session, f"{writer}.{number}")
            print(receipt.first, receipt.last, f"{writer}.{number}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
