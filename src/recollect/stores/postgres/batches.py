"""Appends that are stored by one statement: a lone one, or many together (`schema.APPEND_TOGETHER`).

Plain are the appends of a session that this store has written to before, if none of them has a turn id or expects a
position, or if there is only one. They become one row of the statement: the session's counter rises once, by all of
their messages. The statement leaves out what turns out not to be plain after all; `recollect_append` decides the rest.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from recollect.appending import Append
from recollect.bounds import INTEGER_MAX
from recollect.known import Known, KnownSessions, SeenRow
from recollect.store import Receipt
from recollect.stores.postgres import schema
from recollect.stores.postgres.durability import Reach

PLAIN_PART = 4
"""So many plain appends are worth a statement of their own beside one that is not, which needs another one."""


class Batch:
    """The plain appends of a batch, by session."""

    def __init__(self, appends: list[Append], groups: list[list[int]], known: list[Known]) -> None:
        self._appends = appends
        self._groups = groups
        self._known = known

    @classmethod
    def of(cls, appends: list[Append], places: list[int], known: KnownSessions) -> "Batch | None":
        """Of the appends in these places, which are in the order of their sessions; None if too few are plain."""
        if len(places) < 2:
            return None
        groups: dict[bytes, list[int]] = {}
        for place in places:
            groups.setdefault(appends[place].key, []).append(place)
        plain: list[list[int]] = []
        sessions: list[Known] = []
        for key, group in groups.items():
            session = known.of(key)
            if session.last and (len(group) == 1 or not any(map(_claims, map(appends.__getitem__, group)))):
                plain.append(group)
                sessions.append(session)
        count = sum(map(len, plain))
        return cls(appends, plain, sessions) if count >= PLAIN_PART * (len(places) - count) else None

    def places(self) -> Iterator[int]:
        for group in self._groups:
            yield from group

    def statement(
        self, ttl: timedelta | None, ttl_kept: bool, reached: Reach, turns_max: int
    ) -> tuple[str, tuple[Any, ...]]:
        appends = [[self._appends[place] for place in group] for group in self._groups]
        first = [group[0] for group in appends]
        records = [[record for append in group for record in append.records] for group in appends]
        several = any(len(group) > 1 for group in records)
        claims = any(map(_claims, first))
        rows = [known.row for known in self._known if known.row is not None]
        seen = len(rows) == len(self._known)
        numbers, floors, marks, checksums = map(list, zip(*rows, strict=True)) if seen else ([], [], [], [])
        arguments: tuple[Any, ...] = (
            numbers if seen else [append.key for append in first],
            [len(group) if several else group[0] for group in records],
            [known.last for known in self._known],
            floors if seen else ttl,
            marks if seen else ttl_kept,
            reached.commit_mode,
            reached.fingerprint,
        )
        if claims:
            arguments += (
                [known.claimed(append.expect) for append, known in zip(first, self._known, strict=True)],
                [append.turn for append in first],
                [append.fingerprint for append in first],
                turns_max,
            )
        if several:
            arguments += (
                [place for place, group in enumerate(records, 1) for _ in group],
                [back for group in records for back in reversed(range(len(group)))],
                [record for group in records for record in group],
            )
        if seen:
            arguments += (checksums,)
        return schema.APPEND_TOGETHER[seen, several, claims], arguments

    def note_rows(self, places: Sequence[int], rows: Iterable[SeenRow]) -> None:
        """Remembers the rows that the statement has seen; those it left out are not what was known."""
        found = dict(zip(places, rows, strict=False))
        for number, known in enumerate(self._known, 1):
            if number not in places:
                known.row = None
            elif number in found:
                known.row = found[number] if found[number][-1] is not None else None

    def receipts(
        self, places: Sequence[int], lasts: Sequence[int], reached: Reach
    ) -> Iterator[tuple[int, Receipt]]:
        """By place, from what the statement answered: the sessions it stored, numbered from 1, and their counters."""
        for number, last in zip(places, lasts, strict=True):
            for place in reversed(self._groups[number - 1]):
                append = self._appends[place]
                first = last - len(append.records) + 1
                yield place, Receipt(append.session, first, last, reached.durability, reached.replicas)
                last = first - 1


def lone_statement(
    append: Append, known: Known, ttl: timedelta | None, ttl_kept: bool, reached: Reach, turns_max: int
) -> tuple[str, tuple[Any, ...]]:
    """For one plain append: by the number of the session's row if it has been seen, else by the session's name."""
    kind = len(append.records) > 1, append.turn is not None
    records: Any = append.records if kind[0] else append.records[0]
    expect, settings = known.claimed(append.expect), (reached.commit_mode, reached.fingerprint)
    claimed = () if append.turn is None else (append.turn, turns_max, append.fingerprint)
    if known.row is None:
        arguments = (append.key, records, expect, ttl, ttl_kept, *settings, known.last, *claimed)
        return schema.APPEND_ONE[kind], arguments
    number, floor, marked, checked = known.row
    highest = INTEGER_MAX if expect is None else expect
    lowest = known.last if expect is None else max(known.last, expect)
    return schema.APPEND_SEEN[kind], (
        *(number, records, highest, floor, marked, *settings),
        *(lowest, *claimed, checked),
    )


def _claims(append: Append) -> bool:
    return append.turn is not None or append.expect is not None
