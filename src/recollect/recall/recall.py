"""Recall: conversation → facts → embedding → rows → index, and back: search → context for the prompt.

Rows are the truth (`rows`), the index is derived from them (`indexing`). When `remember` acknowledges, the rows are as
durable as it says; the index follows by itself and can be lost at any time.

Summarising is compare-and-set. A conversation has a cursor: the last of its messages that was summarised. A summariser
reads what comes after the cursor, extracts facts, and writes the facts and the new cursor in one commit that fails if
the cursor has moved. So two summarisers never store the same fact twice, and a message that arrives meanwhile is after
the cursor and is summarised next.
"""

import math
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from types import TracebackType

from recollect.bounds import bounded, is_sequence
from recollect.composite import composite_id, conversation_id
from recollect.erasure import Erasure, Unreached, after_forgetting, erasure
from recollect.errors import Refused, TurnReused, shown
from recollect.fingerprint import fingerprint as fingerprint_of
from recollect.json_values import check_text, join_pairs, refuse_pairs
from recollect.message import Damaged, Message, encode
from recollect.owner import Owner
from recollect.recall.comparing import merged, nearest, scan
from recollect.recall.embedding import Embedder
from recollect.recall.index import Near
from recollect.recall.indexing import Indexer, Nearest
from recollect.recall.llm import LLM, facts_from, summary_prompt
from recollect.recall.memory import (
    Hit,
    IndexState,
    Memory,
    Remembered,
    Search,
    user_key,
)
from recollect.recall.rows import (
    ROLE,
    Cursor,
    CursorMoved,
    Draft,
    MemoryWrite,
    OtherContent,
    Rows,
    Space,
    Written,
    memory_of,
    record_of,
)
from recollect.store import MemoryStore
from recollect.witness import Witness

K_MAX = 10_000
EXACT_ROWS_MAX = 200
"""If a user has no more memories than this, all are compared one by one: faster than asking an index, and none is
missed, as an approximate index may. A user with few memories notices every one that does not come back."""
SUMMARISED_AT_ONCE_MAX = 200
"""Messages given to one summary; a longer conversation takes several."""
CONFLICTS_MAX = 100
FACTS_MAX = 1_000
_WITNESS_SESSION = "recall"


def estimated_tokens(text: str) -> int:
    """A high estimate without a tokenizer: three bytes of UTF-8 per token, which also works for Chinese."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 3)


class Recall:
    """Long-term memory of many users. Made by `recollect.recall.open_recall`."""

    def __init__(
        self,
        rows: Rows,
        embedder: Embedder,
        space: Space,
        llm: LLM,
        *,
        indexer: Indexer | None = None,
        conversations: MemoryStore | None = None,
        witness: Witness | None = None,
        exact_rows_max: int = EXACT_ROWS_MAX,
    ) -> None:
        self.rows = rows
        self.embedder = embedder
        self.llm = llm
        self.conversations = conversations
        self._space = space
        self._indexer = indexer
        self._witness = witness
        self._exact_rows_max = exact_rows_max
        self._owner = Owner()

    # ---- remembering

    async def remember(
        self, user: str, messages: Sequence[Message], *, session: str | None = None, turn: str | None = None
    ) -> Remembered:
        """Keeps the facts in these messages; with a conversation store also the messages, as a turn of the session.

        Returns when everything is as durable as the result says. A retry with the same `turn` stores nothing twice and
        returns what was stored; other messages under a known `turn` are refused (`TurnReused`).
        """
        _check_ids(user, session, turn)  # all of them, before the first of several writes
        if self.conversations is None:
            given = None if turn is None else _checked_fingerprint(messages)
            facts = await self._facts(messages)
            return await self._keep(user, facts, session=session, turn=turn, fingerprint=given)
        session = session if session is not None else ""
        receipt = await self.conversations.append(conversation_id(user, session), messages, turn=turn)
        memories = await self.summarise(user, session)
        durability = min(receipt.durability, self.rows.durability)
        return Remembered(memories, durability, receipt)

    async def add(
        self,
        user: str,
        facts: Sequence[str],
        *,
        session: str | None = None,
        turn: str | None = None,
        created_at: float | None = None,
    ) -> Remembered:
        """Keeps facts as they are, without a summariser."""
        _check_ids(user, session, turn)
        for fact in facts:
            check_text(fact, "facts")
        now = Message("user", "", time.time() if created_at is None else created_at)
        given = None if turn is None else _checked_fingerprint([Message(ROLE, fact) for fact in facts])
        return await self._keep(
            user, [(fact, now) for fact in facts], session=session, turn=turn, fingerprint=given
        )

    async def summarise(self, user: str, session: str) -> list[Memory]:
        """Brings the session's facts up to its newest message; returns the new ones. Safe to run at any time."""
        _check_ids(user, session, None)
        if self.conversations is None:
            raise Refused("summarise: Recall was opened without a conversation store")
        conversation = conversation_id(user, session)
        key = _digest(conversation)
        added: list[Memory] = []
        wrote = False
        for _ in range(CONFLICTS_MAX):
            # Before the conversation is read, so that a user forgotten since is noticed when the summary is written.
            through, times_forgotten = await self.rows.summarised(user_key(user), key)
            news = await self.conversations.history(conversation, after=through)
            if not news:
                if not wrote:  # perhaps this is a retry, and nobody has waited for what it finds
                    await self.rows.settled()
                return added
            portion = news[:SUMMARISED_AT_ONCE_MAX]
            messages = [item.message for item in portion if not isinstance(item.message, Damaged)]
            facts = await self._facts(messages)
            drafts, memories = await self._drafts(facts, session)
            cursor = Cursor(key, through, portion[-1].sequence, times_forgotten)
            try:
                written = await self._write(
                    MemoryWrite(user_key(user), drafts, self._space.number, cursor=cursor)
                )
            except CursorMoved:
                continue  # another summariser took these, or they are forgotten; look again for what is left
            added += _numbered(memories, written.sequences)
            wrote = True
        return added

    async def _keep(
        self,
        user: str,
        facts: Sequence[tuple[str, Message]],
        *,
        session: str | None,
        turn: str | None,
        fingerprint: bytes | None,
    ) -> Remembered:
        key = user_key(user)
        if not facts:
            return Remembered([], self.rows.durability)
        drafts, memories = await self._drafts(facts, session)
        turn_key = None if turn is None else _digest(composite_id(session or "", turn, separator="\0"))
        write = MemoryWrite(key, drafts, self._space.number, turn=turn_key, fingerprint=fingerprint)
        try:
            written = await self._write(write)
        except OtherContent as error:
            raise TurnReused(session or "", turn or "") from error
        if written.repeated:  # the summariser may have found other facts this time; what is stored counts
            rows = await self.rows.fetch(key, written.sequences)
            memories = [memory_of(row.sequence, row.record) for row in rows]
            return Remembered(sorted(memories, key=lambda memory: memory.sequence), self.rows.durability)
        return Remembered(_numbered(memories, written.sequences), self.rows.durability)

    async def _write(self, write: MemoryWrite) -> Written:
        sent_at = time.monotonic()
        written = await self.rows.write(write)
        if self._indexer is not None and written.sequences:
            self._indexer.nudge()
        if self._witness is not None and written.sequences:
            self._witness.note(_WITNESS_SESSION, written.sequences[-1], sent_at)
        return written

    async def _facts(self, messages: Sequence[Message]) -> list[tuple[str, Message]]:
        """Each fact with the message it came from; the model is asked about each message that a user wrote."""
        facts: list[tuple[str, Message]] = []
        for message in messages:
            if message.role == "user" and message.text.strip():
                answer = await self.llm.complete([summary_prompt(), message])
                # Nothing a model answers is a reason to refuse what is already stored.
                facts += [(join_pairs(fact), message) for fact in facts_from(answer)]
        return facts[:FACTS_MAX]

    async def _drafts(
        self, facts: Sequence[tuple[str, Message]], session: str | None
    ) -> tuple[list[Draft], list[Memory]]:
        vectors = await self.embedder.embed([text for text, _ in facts]) if facts else []
        drafts: list[Draft] = []
        memories: list[Memory] = []
        for (text, message), vector in zip(facts, vectors, strict=True):
            record = record_of(text, message.timestamp, session, message.id)
            drafts.append(Draft(record, vector.tobytes()))
            memories.append(Memory(0, text, message.timestamp, session, message.id))
        return drafts, memories

    # ---- recalling

    async def search(self, user: str, query: str, k: int = 5) -> Search:
        """The user's k memories nearest to the query, best first."""
        check_text(query, "query")
        if not isinstance(k, int) or not 0 < k <= K_MAX:
            raise Refused(f"k: 1 to {K_MAX}, not {shown(k)}")
        key = user_key(user)
        (embedded,) = await self.embedder.embed([query])
        vector = embedded.tobytes()
        found = None
        if self._indexer is not None and not await self._few(key):
            found = await self._indexer.nearest(key, vector, k)
        if found is not None:
            near = merged([found.near, nearest(vector, found.unseen, k)], k + len(found.near))
            hits = await self._hits(key, near, k)
            if len(hits) == k or len(hits) == await self.rows.held(key, k):
                return Search(hits, self.index_state, "index", found.complete)
        near = await scan(self.rows, key, vector, k)
        if found is not None:
            await self._doubt(found, near)
        return Search(await self._hits(key, near, k), self.index_state, "scan", False)

    async def _few(self, user: bytes) -> bool:
        limit = self._exact_rows_max
        return limit > 0 and await self.rows.held(user, limit + 1) <= limit

    async def _doubt(self, found: Nearest, near: Sequence[Near]) -> None:
        """The index found too few: has it lost any of the rows it must know but did not return?"""
        known = {item.sequence for item in found.near}
        kept_back = [
            item.sequence for item in near if item.sequence <= found.through and item.sequence not in known
        ]
        if kept_back and self._indexer is not None:
            await self._indexer.short(kept_back)

    async def _hits(self, user: bytes, near: Sequence[Near], k: int) -> list[Hit]:
        """The rows of these hits: only the user's, and only those not forgotten."""
        near = [item for item in near if is_sequence(item.sequence)]  # an index may come back damaged
        if not near:
            return []
        rows = {row.sequence: row for row in await self.rows.fetch(user, [item.sequence for item in near])}
        living = [item for item in near if item.sequence in rows]
        return [Hit(memory_of(item.sequence, rows[item.sequence].record), item.score) for item in living[:k]]

    async def context(
        self,
        user: str,
        query: str,
        budget_tokens: int,
        *,
        k: int = 20,
        score_min: float = 0.05,
        count_tokens: Callable[[str], int] = estimated_tokens,
    ) -> str:
        """The memories relevant to the query, one per line, best first, as many as fit the budget."""
        return context_of(await self.search(user, query, k), budget_tokens, score_min, count_tokens)

    async def memories(self, user: str, *, before: int | None = None, limit: int = 100) -> list[Memory]:
        """What is remembered about the user, newest first, from the rows."""
        above = None if before is None else bounded("before", before)
        rows = await self.rows.newest(user_key(user), above, bounded("limit", limit))
        return [memory_of(row.sequence, row.record) for row in rows]

    async def forget(self, user: str, sequence: int | None = None) -> int:
        """Forgets one memory of the user, or all; returns how many there were. The conversation is not touched.

        To forget a user with the conversations, forget those first. Then a summary that is being made of them,
        in any process, adds nothing afterwards.
        """
        sequences = None if sequence is None else [bounded("sequence", sequence)]
        count = await self.rows.forget(user_key(user), sequences)
        if self._indexer is not None:
            self._indexer.nudge()
        return count

    async def erase(self, user: str, sequence: int | None = None) -> Erasure:
        """Forgets one memory of the user, or all of them, and makes the engines rewrite their files without them.

        The report says which files no longer hold the bytes, and which may; its `session` is the user. What was
        forgotten before is erased too. The index is rebuilt, which takes longer the larger it is; searches scan the
        rows meanwhile. The conversation is not touched: erase its session in its store.
        """
        await self.forget(user, sequence)
        reached: list[str] = []
        unreached: list[Unreached] = []
        with after_forgetting():
            for part in (self._indexer, self.rows):
                if part is not None:
                    done, left = await part.erase()
                    reached += done
                    unreached += [each for each in left if each not in unreached]
        return erasure(user, reached, unreached, None)

    # ---- the index

    @property
    def index_state(self) -> IndexState:
        return IndexState.NONE if self._indexer is None else self._indexer.state

    @property
    def rebuilds(self) -> int:
        """How many times the index was rebuilt from the rows since it was opened."""
        return 0 if self._indexer is None else self._indexer.rebuilds

    async def index_ready(self) -> None:
        """Returns once the index is trusted and has every row; at once if there is no index."""
        if self._indexer is not None:
            await self._indexer.ready()

    async def close(self) -> None:
        """Does not close the conversation store: whoever opened it does."""
        if not self._owner.may_close():
            return
        if self._indexer is not None:
            await self._indexer.close()
        if self._witness is not None:
            await self._witness.close()
        await self.rows.close()

    async def __aenter__(self) -> "Recall":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def context_of(
    search: Search,
    budget_tokens: int,
    score_min: float = 0.05,
    count_tokens: Callable[[str], int] = estimated_tokens,
) -> str:
    lines: list[str] = []
    left = budget_tokens
    for hit in search.hits:
        # One line each: a memory cannot pretend to be another.
        line = f"- {' '.join(hit.memory.text.split())}"
        cost = count_tokens(line + "\n")
        if hit.score < score_min or not hit.memory.text or cost > left:
            continue
        lines.append(line)
        left -= cost
    return "\n".join(lines)


def _checked_fingerprint(messages: Sequence[Message]) -> bytes:
    for message in messages:
        encode(message)  # refuses what cannot have a fingerprint
    return fingerprint_of(messages)


def _numbered(memories: Sequence[Memory], sequences: Sequence[int]) -> list[Memory]:
    pairs = zip(memories, sequences, strict=True)
    return [
        Memory(sequence, memory.text, memory.created_at, memory.session, memory.message)
        for memory, sequence in pairs
    ]


def _check_ids(user: str, session: str | None, turn: str | None) -> None:
    user_key(user)
    if turn is not None:
        check_text(turn, "turn")
    if session is not None:
        check_text(session, "session")
        refuse_pairs(session, "session")  # it is part of each memory's record


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=b"recollect-recall").digest()
