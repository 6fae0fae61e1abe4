"""How long the slowest sync of a recording took."""

from recollect.verify.disk.records import Op, Record
from recollect.verify.running.faults.disk import longest_sync_s


def at(time_s: float, op: Op, tid: int = 1) -> Record:
    return Record(op, time_ns=round(time_s * 1e9), pid=7, tid=tid)


def test_the_longest_of_several_threads() -> None:
    records = [
        at(1, Op.SYNC),
        at(1.1, Op.SYNC, 2),
        at(1.2, Op.SYNC_END),
        at(3.0, Op.SYNC_END, 2),
        at(4, Op.WRITE),
    ]
    assert longest_sync_s(records) == 1.9


def test_one_that_has_not_ended() -> None:
    assert longest_sync_s([at(1, Op.SYNC), at(1.5, Op.WRITE, 2)]) == 0.5


def test_none() -> None:
    assert longest_sync_s([]) == 0.0
