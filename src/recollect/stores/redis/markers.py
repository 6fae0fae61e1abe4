"""The identity of a store in a cluster: the same UUID in many slots, so that one emptied shard is noticed.

Each 128th of the slots has a marker. A marker that is missing where others are sealed was lost, with everything
else there: the shard was emptied, or replaced. Markers are sealed once all of them are there, so a store that died
while it made them is not taken for one that lost some.
"""

import functools
from collections.abc import Iterable

from recollect.stores.redis.slots import SLOTS, slot_of
from recollect.stores.redis.wire import Reply

MARKERS = 128
_SEALED = " sealed"


@functools.cache
def tags() -> tuple[str, ...]:
    """The part in braces of each marker's key, in the order of their slots. No session's begins with an i."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < MARKERS:
        tag = f"i{number}"
        found.setdefault(slot_of(tag.encode()) // (SLOTS // MARKERS), tag)
        number += 1
    return tuple(found[part] for part in range(MARKERS))


@functools.cache
def slots() -> tuple[int, ...]:
    return tuple(slot_of(tag.encode()) for tag in tags())


def name_of(prefix: str, marker: int) -> str:
    return f"{prefix}:{{{tags()[marker]}}}:identity"


def sealed(identity: str) -> str:
    return identity + _SEALED


def identity_in(reply: Reply) -> str | None:
    """The identity that a marker holds; None if there is none."""
    if not isinstance(reply, bytes):
        return None
    return reply.decode("utf-8", "replace").removesuffix(_SEALED)


def is_sealed(reply: Reply) -> bool:
    return isinstance(reply, bytes) and reply.endswith(_SEALED.encode())


def any_sealed(replies: Iterable[Reply]) -> bool:
    return any(is_sealed(reply) for reply in replies)
