"""Sessions on their way from or to a SQLite store; see `recollect.moving`."""

import sqlite3
import time
from functools import partial

from recollect.appending import session_key
from recollect.errors import Refused, Unreadable, shorten
from recollect.moving import Piece, RememberedTurn, SessionKept
from recollect.stores.sqlite.changes import INSERT, LongJob, SqliteChanges
from recollect.stores.sqlite.rows import SEQUENCE_MAX, Session, seal, session_row

_TURNS = """
SELECT turn, first, last, fingerprint FROM recollect_turns LEFT JOIN recollect_fingerprints USING (session, first)
WHERE session = ? ORDER BY number"""


class SqliteMoving(SqliteChanges):
    """The part of `SqliteStore` that hands sessions over, and takes them, as they are."""

    async def kept(self, session: str) -> SessionKept:
        """See `recollect.moving.Movable`."""
        key = session_key(session)

        def query(
            connection: sqlite3.Connection,
        ) -> tuple[Session, list[tuple[bytes, int, int, bytes]]] | None:
            found = session_row(connection, key)
            return None if found is None else (found, connection.execute(_TURNS, (found.id,)).fetchall())

        answer = await self._read(query)
        if answer is None:
            return SessionKept(None, [])
        found, rows = answer
        try:
            turns = [RememberedTurn(row[0].decode("utf-8", "surrogatepass"), *row[1:]) for row in rows]
        except (AttributeError, ValueError) as error:
            raise Unreadable(
                f"session {shorten(session)}: a turn id that is not recollect's ({error})"
            ) from error
        return SessionKept(found.expires_at, turns)

    async def restore(self, session: str, piece: Piece) -> None:
        """See `recollect.moving.Movable`."""
        key = session_key(session)
        # A place has 32 bits for it: the rest would be another session's number.
        if piece.last > SEQUENCE_MAX:
            raise Refused(
                f"session {shorten(session)} is at {piece.last:,}; SQLite holds up to {SEQUENCE_MAX:,} messages of one"
            )
        sent_at = time.monotonic()
        await self._submit(LongJob(partial(self._restore, session=session, key=key, piece=piece)))
        if self._witness is not None:
            self._witness.note(session, piece.last, sent_at)

    def _restore(self, connection: sqlite3.Connection, session: str, key: bytes, piece: Piece) -> None:
        self._known.pop(key, None)
        found = session_row(connection, key)
        actual = 0 if found is None else found.last
        if actual != piece.base or (found is not None and piece.base == 0):
            raise piece.conflict(session, actual)
        if found is None:
            number = connection.execute(
                "INSERT INTO recollect_sessions (key, floor, created) VALUES (?, ?, ?)",
                (key, piece.floor, piece.created),
            ).lastrowid
            assert number is not None
        else:
            number = found.id
        connection.executemany(
            INSERT, [(number << 32 | sequence, record, piece.updated) for sequence, record in piece.rows]
        )
        expires = None if piece.kept is None else piece.kept.expires
        connection.execute(
            "UPDATE recollect_sessions SET marked = marked OR ?, expires_at = ? WHERE id = ?",
            (piece.marked > 0, expires, number),
        )
        seal(connection, number)
        if piece.metadata is not None:
            connection.execute(
                "INSERT OR REPLACE INTO recollect_about VALUES (?, ?)", (number, piece.metadata)
            )
        if piece.kept is not None:
            self._restore_turns(connection, number, piece.kept.turns[-self._options.turns_kept :])

    def _restore_turns(
        self, connection: sqlite3.Connection, number: int, turns: list[RememberedTurn]
    ) -> None:
        connection.executemany(
            "INSERT INTO recollect_turns VALUES (?, ?, ?, ?, ?)",
            [
                (number, place, each.turn.encode("utf-8", "surrogatepass"), each.first, each.last)
                for place, each in enumerate(turns, 1)
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO recollect_fingerprints VALUES (?, ?, ?)",
            [(number, each.first, each.fingerprint) for each in turns if each.fingerprint is not None],
        )
