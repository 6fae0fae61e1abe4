"""Who may clean up a namespace on an engine that belongs to others.

A namespace is ours while its lease is valid. A killed run leaves its namespace behind; a later run may remove it if the
lease proves that a run made it (`recollect.verify.host.marker`) and that this run is over: its owner was a process on
this very machine that is gone, or, if that cannot be known, its time is up by the engine's own clock.

A lease that cannot be read is no lease: the namespace belongs to somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from recollect.verify.host.folder import RunOwner, this_process
from recollect.verify.host.marker import Marker

LIFETIME_S = 24 * 3600


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    proof: str
    """The marker's proof, from which the namespace's name is derived."""
    thing: str
    """The engine's own name for the namespace, such as `database 16401`: a copy under our name has another."""
    owner: RunOwner
    expires: float
    """Epoch seconds, by the engine's clock."""

    @classmethod
    def taken(cls, marker: Marker, thing: str, now: float) -> Lease:
        return cls(marker.proof, thing, this_process(), now + LIFETIME_S)

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()

    def over(self, now: float) -> bool:
        known = this_process()
        if (self.owner.boot, self.owner.namespace) == (known.boot, known.namespace):
            return self.owner.gone()
        return now > self.expires


def read(encoded: str | None) -> Lease | None:
    """The lease, if it is one."""
    try:
        return msgspec.json.decode((encoded or "").encode(), type=Lease)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


@dataclass(frozen=True)
class Candidate:
    """Something on the engine whose name could be one of our namespaces'."""

    name: str
    """Without the prefix that all our names have."""
    thing: str
    encoded: str | None = field(repr=False)
    """The text in the place where a lease would be."""

    def is_left(self, now: float) -> bool:
        """Whether a run of ours made it and that run is over: the only reason to remove what others might use."""
        lease = read(self.encoded)
        return (
            lease is not None
            and Marker(lease.proof).proves(self.name)
            and lease.thing == self.thing
            and lease.over(now)
        )
