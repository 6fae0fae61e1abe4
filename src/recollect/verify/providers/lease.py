"""Who may clean up a namespace on an engine that belongs to others.

A namespace is ours while its lease lives. A run that was killed leaves its namespace behind; a later run may remove it
when the lease proves that a run made it (`recollect.verify.host.marker`) and says that this run is over: its owner is a
process of this very machine that is gone, or, where that cannot be known, its time is up by the engine's own clock.

A lease that cannot be read is not a lease: what it is kept in belongs to somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from recollect.verify.host.folder import RunOwner, this_process
from recollect.verify.host.marker import Marker

LIFETIME_S = 24 * 3600


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    proof: str
    """The marker's, from which the namespace has its name."""
    thing: str
    """What the engine itself calls the namespace, such as `database 16401`: a copy under the same name is another."""
    owner: RunOwner
    expires: float
    """Epoch seconds of the engine's clock."""

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
    """Something on the engine that is called as one of our namespaces could be."""

    name: str
    """Without what all our names begin with."""
    thing: str
    encoded: str | None = field(repr=False)
    """What stands where a lease would be."""

    def is_left(self, now: float) -> bool:
        """A run of ours made it, and that run is over. The only reason there is to remove what others may use."""
        lease = read(self.encoded)
        return (
            lease is not None
            and Marker(lease.proof).proves(self.name)
            and lease.thing == self.thing
            and lease.over(now)
        )
