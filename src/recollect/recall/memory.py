"""The values of long-term memory: what is kept about a user, and what a search returns.

Rows and indexes know a user only as a digest of fixed length (`user_key`): no id, however hostile, can be truncated,
escaped or spelled into another user's data, and what is left after forgetting names nobody.
"""

import enum
from hashlib import blake2b

import msgspec

from recollect.composite import conversation_id as conversation_id
from recollect.errors import Refused, shorten
from recollect.json_values import check_text
from recollect.store import Durability, Receipt

USER_BYTES_MAX = 100_000


def user_key(user: str) -> bytes:
    """32 bytes; distinct ids have distinct keys, lone surrogates included."""
    check_text(user, "user")
    if not user:
        raise Refused("user: an id of text, not ''")
    raw = user.encode("utf-8", "surrogatepass")
    if len(raw) > USER_BYTES_MAX:
        raise Refused(f"user {shorten(user)}: {len(raw):,} bytes; at most {USER_BYTES_MAX:,}")
    return blake2b(raw, digest_size=32, person=b"recollect-user").digest()


class Memory(msgspec.Struct, frozen=True):
    """One fact remembered about a user."""

    sequence: int
    """Its place among all memories of the store; never reused. Pass it to `Recall.forget`."""
    text: str
    created_at: float
    """Epoch seconds of the message it came from."""
    session: str | None = None
    message: str | None = None
    """The id of the message it came from."""
    damaged: str | None = None
    """Why the record cannot be understood; `text` is then empty."""


class Hit(msgspec.Struct, frozen=True):
    memory: Memory
    score: float
    """Cosine similarity of the embeddings, at most 1."""


class IndexState(enum.Enum):
    READY = "ready"
    """Checked, and trusted for searching."""
    REBUILDING = "rebuilding"
    """Being checked, caught up or rebuilt from the rows."""
    DOWN = "down"
    """Not answering or damaged; tried again from time to time."""
    NONE = "none"
    """Recall was opened without an index."""


class Search(msgspec.Struct, frozen=True):
    """What a search found, best first, and what it is worth."""

    hits: list[Hit]
    index: IndexState
    method: str
    """``index`` (with the newest rows compared one by one) or ``scan`` (all of the user's rows, one by one)."""
    index_complete: bool
    """Whether the index had seen every row. The result itself is complete either way: what the index lacks is
    compared one by one."""


class Remembered(msgspec.Struct, frozen=True):
    """The acknowledgement of `Recall.remember`."""

    memories: list[Memory]
    durability: Durability
    conversation: Receipt | None = None
    """Where the messages themselves are, if Recall was opened with a conversation store."""
