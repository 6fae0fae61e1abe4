"""Appends that are stored by one statement (`schema.APPEND_TOGETHER`).

Plain are the appends of a session that this store has written to before, if none of them has a turn id or expects a
position, or if there is only one. They become one row of the statement: the session's counter rises once, by all of
their messages. The statement leaves out what turns out not to be plain after all; `recollect_append` decides the rest.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from recollect.appending import Append
from recollect.known import KnownSessions
from recollect.store import Receipt
from recollect.stores.postgres import schema
from recollect.stores.postgres.durability import Reach

PLAIN_PART = 4
"""So many plain appends are worth a statement of their own beside one that is not, which needs another one."""


class Batch:
    """The plain appends of a batch, by session."""

    def __init__(self, appends: list[Append], groups: list[list[int]], known: list[int]) -> None:
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
        lasts: list[int] = []
        for key, group in groups.items():
            last = known.of(key).last
            if last and (len(group) == 1 or not any(map(_claims, map(appends.__getitem__, group)))):
                plain.append(group)
                lasts.append(last)
        count = sum(map(len, plain))
        return cls(appends, plain, lasts) if count >= PLAIN_PART * (len(places) - count) else None

    def places(self) -> Iterator[int]:
        for group in self._groups:
            yield from group

    def statement(
        self, ttl: timedelta | None, ttl_kept: bool, commit_mode: str, settings: str, turns_max: int
    ) -> tuple[str, tuple[Any, ...]]:
        appends = [[self._appends[place] for place in group] for group in self._groups]
        first = [group[0] for group in appends]
        records = [[record for append in group for record in append.records] for group in appends]
        several = any(len(group) > 1 for group in records)
        claims = any(map(_claims, first))
        arguments: tuple[Any, ...] = (
            [append.key for append in first],
            [len(group) if several else group[0] for group in records],
            self._known,
            ttl,
            ttl_kept,
            commit_mode,
            settings,
        )
        if claims:
            arguments += (
                [append.expect for append in first],
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
        return schema.APPEND_TOGETHER[several, claims], arguments

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


def _claims(append: Append) -> bool:
    return append.turn is not None or append.expect is not None
