"""Sessions on their way from or to a PostgreSQL store; see `recollect.moving`."""

import time

from recollect.appending import session_key
from recollect.errors import NotWritten, RecollectError
from recollect.moving import Piece, RememberedTurn, SessionKept
from recollect.stores.postgres.changes import SETTINGS_CHANGED, PostgresChanges
from recollect.stores.postgres.schema import INTACT

_EXPIRES = """
SELECT extract(epoch FROM expires_at)::float8 FROM recollect_sessions WHERE sha256(name) = sha256($1)"""
_TURNS = """
SELECT t.turn, t.first, t.last, t.fingerprint FROM recollect_sessions s JOIN recollect_turns t ON t.session_id = s.id
 WHERE sha256(s.name) = sha256($1) ORDER BY t.first"""

# The session's row comes first: where it is not at its base, there is none, and nothing else is written.
_RESTORE = f"""
WITH session AS (
    INSERT INTO recollect_sessions AS s (name, last, floor, freed, marked, created_at, updated_at, expires_at, turns)
    SELECT $1, $3, $4, $4, $5, to_timestamp($6), to_timestamp($7), to_timestamp($8), cardinality($12::bytea[])
      FROM (SELECT recollect_settings($16, $17)) AS checked
     WHERE $2 = 0 OR EXISTS (SELECT FROM recollect_sessions e WHERE sha256(e.name) = sha256($1))
    ON CONFLICT (sha256(name)) DO UPDATE
       SET last = excluded.last, marked = s.marked OR excluded.marked, updated_at = excluded.updated_at,
           expires_at = excluded.expires_at, turns = excluded.turns
     WHERE $2 > 0 AND s.last = $2 AND {INTACT}
    RETURNING id
), message AS (
    INSERT INTO recollect_messages (session_id, sequence, record)
    SELECT id, r.sequence, r.record FROM session, unnest($9::bigint[], $10::bytea[]) AS r (sequence, record)
), about AS (
    INSERT INTO recollect_about (session_id, metadata) SELECT id, $11::bytea FROM session WHERE $11::bytea IS NOT NULL
    ON CONFLICT (session_id) DO UPDATE SET metadata = excluded.metadata
), turn AS (
    INSERT INTO recollect_turns (session_id, turn, first, last, fingerprint)
    SELECT session.id, t.*
      FROM session, unnest($12::bytea[], $13::bigint[], $14::bigint[], $15::bytea[]) AS t
)
SELECT count(*) FROM session"""


class PostgresMoving(PostgresChanges):
    """The part of `PostgresStore` that hands sessions over, and takes them, as they are."""

    async def kept(self, session: str) -> SessionKept:
        """See `recollect.moving.Movable`."""
        key = session_key(session)
        expires = await self._read(_EXPIRES, key)
        turns = [
            RememberedTurn(turn.decode("utf-8", "surrogatepass"), *rest)
            for turn, *rest in await self._read(_TURNS, key)
        ]
        return SessionKept(expires[0][0] if expires else None, turns)

    async def restore(self, session: str, piece: Piece) -> None:
        """See `recollect.moving.Movable`."""
        key = session_key(session)
        kept = piece.kept or SessionKept(None, [])
        turns = kept.turns[-self._options.turns_kept :]
        arguments = (
            *(key, piece.base, piece.last, piece.floor, piece.marked > 0),
            *(piece.created, piece.updated, kept.expires),
            *([sequence for sequence, _ in piece.rows], [record for _, record in piece.rows], piece.metadata),
            *([each.turn.encode("utf-8", "surrogatepass") for each in turns],),
            *([each.first for each in turns], [each.last for each in turns]),
            [each.fingerprint for each in turns],
        )
        deadline = time.monotonic() + self._timeout_s
        for _ in range(3):
            reached, sent_at = self._reach, time.monotonic()
            try:
                rows = await self._write(
                    _RESTORE, (*arguments, reached.commit_mode, reached.fingerprint), deadline
                )
            except RecollectError as error:
                if getattr(error.__cause__, "sqlstate", None) != SETTINGS_CHANGED:
                    raise
                await self._reach_again(deadline)
                continue
            if not rows[0][0]:
                raise piece.conflict(session, await self.position(session))
            self._note(session, self._known.of(key), piece.last, sent_at)
            return
        raise NotWritten("PostgreSQL's durability settings keep changing; nothing was written")
