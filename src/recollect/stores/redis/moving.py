"""Sessions on their way from or to a Redis store; see `recollect.moving`."""

from recollect.appending import session_key
from recollect.errors import EngineUnavailable, NotWritten, OutcomeUnknown, Unreadable, shorten
from recollect.moving import Piece, RememberedTurn, SessionKept
from recollect.stores.redis.changes import RedisChanges
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.elements import is_number
from recollect.stores.redis.errors import read_refused, write_refused
from recollect.stores.redis.script import RESTORE
from recollect.stores.redis.wire import Reply, ReplyError, pack, pack_arguments

PLACES = 16384
"""A turn's place is its first sequence times this, plus the number of its messages after the first."""


class RedisMoving(RedisChanges):
    """The part of `RedisStore` that hands sessions over, and takes them, as they are."""

    async def kept(self, session: str) -> SessionKept:
        """See `recollect.moving.Movable`."""
        key = session_key(session)
        self._check_open(EngineUnavailable)
        place = self._places.of(key)
        _, counter, turns, fingerprints = self._address.session_keys(key)
        request = pack("HGET", counter, "expires") + pack("ZRANGE", turns, 0, -1, "WITHSCORES")
        expires, scored = await self._servers.ask(place.slot, request, 2)
        for reply in (expires, scored):
            if isinstance(reply, ReplyError):
                raise read_refused(reply)
        listed = scored if isinstance(scored, list) else []
        ids, places = listed[::2], [int(float(score)) for score in listed[1::2] if isinstance(score, bytes)]
        found: list[RememberedTurn] = []
        if ids:
            [digests] = await self._servers.ask(place.slot, pack("HMGET", fingerprints, *places), 1)
            if not isinstance(digests, list):
                raise Unreadable(f"session {shorten(session)}: unexpected fingerprints {str(digests)[:100]}")
            found = [_turn(*each) for each in zip(ids, places, digests, strict=True)]
        seconds = int(expires) / 1000 if isinstance(expires, bytes) and is_number(expires) else None
        return SessionKept(seconds, found)

    async def restore(self, session: str, piece: Piece) -> None:
        """See `recollect.moving.Movable`."""
        key = session_key(session)
        self._check_open(NotWritten)
        place = self._places.of(key)
        kept = piece.kept or SessionKept(None, [])
        turns = kept.turns[-int(self._option_values[0]) :]
        arguments: list[bytes] = [
            *(b"%d" % number for number in (piece.base, piece.last, piece.floor, piece.marked)),
            *(_milliseconds(moment) for moment in (piece.created, piece.updated, kept.expires)),
            piece.metadata or b"",
            b"%d" % len(piece.rows),
            b"%d" % len(turns),
            *(b"%d %b" % row for row in piece.rows),
        ]
        for each in turns:
            at = each.first * PLACES + (each.last - each.first) % PLACES
            arguments += [each.turn.encode("utf-8", "surrogatepass"), b"%d" % at, each.fingerprint or b""]
        write = QueuedWrite(RESTORE, (place.keys,), pack_arguments(arguments), len(arguments))
        reply = await self._submit(write, place)
        if isinstance(reply, ReplyError):
            raise write_refused(reply)
        match reply:
            case [b"conflict", int(actual)]:
                raise piece.conflict(session, actual)
        if write.shortfall is not None:
            raise OutcomeUnknown(f"written, but {write.shortfall}", "import again")
        place.known.note(piece.last, write.sent_at)
        if self._witness is not None:
            self._witness.note(session, piece.last, write.sent_at)


def _turn(turn: Reply, place: int, digest: Reply) -> RememberedTurn:
    assert isinstance(turn, bytes)
    first = place // PLACES
    kept = digest if isinstance(digest, bytes) else None
    return RememberedTurn(turn.decode("utf-8", "surrogatepass"), first, first + place % PLACES, kept)


def _milliseconds(moment: float | None) -> bytes:
    return b"" if moment is None else b"%d" % round(moment * 1000)
