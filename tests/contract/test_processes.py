"""Several operating-system processes write into one session at once."""

import subprocess
import sys
from pathlib import Path

from recollect import open_store
from tests.contract.conftest import Place
from tests.contract.reading import texts

APPENDER = Path(__file__).with_name("appender.py")
WRITERS = 8
TURNS = 200


async def test_eight_processes_lose_nothing_and_keep_their_order(place: Place, session: str) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, str(APPENDER), place.url, session, str(writer), str(TURNS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for writer in range(WRITERS)
    ]
    acknowledged: dict[str, tuple[int, int]] = {}
    for writer in writers:
        output, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0
        for line in output.splitlines():
            first, last, turn = line.split()
            acknowledged[turn] = int(first), int(last)
    assert len(acknowledged) == WRITERS * TURNS

    async with open_store(place.url) as store:
        found = await store.history(session)
        said = await texts(store, session)
    assert [item.sequence for item in found] == list(range(1, 2 * WRITERS * TURNS + 1))
    for turn, (start, end) in acknowledged.items():
        assert said[start - 1 : end] == [f"{turn}:question", f"{turn}:answer"]
    for writer_number in range(WRITERS):
        own = [text for text in said if text.startswith(f"{writer_number}.")]
        assert own == [f"{writer_number}.{n}:{part}" for n in range(TURNS) for part in ("question", "answer")]
