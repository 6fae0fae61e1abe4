"""Parts of a memory with canaries of their own: all of it on one server, a sixteenth of the slots in a cluster.

A part has two sessions, in the same slot: they are always on the same server, whatever moves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recollect.secret import scheme_of

PREFIX = "recollect-watch"
PARTS = 16
"""Of a cluster. A primary with fewer slots than that may have none."""
_CANARY_SESSION = re.compile(rf"{PREFIX}/[0-9a-f]{{12}}/\d+")


def is_canary(session: str) -> bool:
    """Whether a watch made this session: a part of no application's memory."""
    return _CANARY_SESSION.fullmatch(session) is not None


@dataclass(frozen=True)
class CanaryPart:
    name: str
    """Distinguishes what is remembered of it; empty if there is only one."""
    sessions: tuple[str, str]


def parts_of(url: str, canary: str) -> list[CanaryPart]:
    if not scheme_of(url).endswith("+cluster"):
        return [CanaryPart("", (f"{PREFIX}/{canary}/0", f"{PREFIX}/{canary}/1"))]
    from recollect.stores.redis.address import parse_address
    from recollect.stores.redis.slots import SLOTS, slot_of

    address = parse_address(url)
    first: dict[int, str] = {}
    found: dict[int, CanaryPart] = {}
    number = 0
    while len(found) < PARTS:
        session = f"{PREFIX}/{canary}/{number}"
        slot = slot_of(address.session_keys(session.encode())[0].encode())
        part = slot * PARTS // SLOTS
        other = first.setdefault(slot, session)
        if other != session and part not in found:
            found[part] = CanaryPart(f"/{part}", (other, session))
        number += 1
    return [found[part] for part in range(PARTS)]
