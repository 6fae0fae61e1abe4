"""The kit's target for long-term memory hides no damaged row from the judge."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from recollect.message import Damaged, Message
from recollect.recall.opening import open_recall
from recollect.verify.recall_targets import RecallTarget
from recollect.verify.target.returned import elements


async def with_one_damaged(path: Path) -> list[Message | Damaged]:
    target = RecallTarget(await open_recall(f"sqlite:///{path}", index=None))
    try:
        await target.append("s", [Message("user", "one"), Message("user", "two"), Message("user", "three")])
        with closing(sqlite3.connect(path)) as connection:
            second = "SELECT sequence FROM recall_memories ORDER BY sequence LIMIT 1 OFFSET 1"
            connection.execute(f"UPDATE recall_memories SET record = x'00ff' WHERE sequence = ({second})")
            connection.commit()
        return await target.history("s")
    finally:
        await target.close()


def test_a_damaged_memory_is_handed_over_in_its_place(tmp_path: Path) -> None:
    read = asyncio.run(with_one_damaged(tmp_path / "rows.db"))
    assert [type(record) for record in read] == [Message, Damaged, Message]
    seen = elements(read)
    assert len(seen.numbers) == 3
    assert [what.damaged for what in seen.odd][1] is True
