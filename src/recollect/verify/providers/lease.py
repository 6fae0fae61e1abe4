"""Who may clean up a namespace on an engine that belongs to others.

A namespace is ours while its lease lives. A run that was killed leaves its namespace behind; a later run may
remove it when its owner is a process of this very machine that is gone, or when its lease has run out,
wherever it was taken.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from recollect.verify.host.folder import Owner, this_process

LIFETIME_S = 3600


@dataclass(frozen=True)
class Lease:
    owner: Owner
    expires: float
    """Epoch seconds."""

    @classmethod
    def taken_now(cls) -> Lease:
        return cls(this_process(), time.time() + LIFETIME_S)

    def encoded(self) -> str:
        return json.dumps({"owner": asdict(self.owner), "expires": self.expires})

    def over(self) -> bool:
        same_machine = self.owner.boot == this_process().boot
        return time.time() > self.expires or (same_machine and self.owner.gone())


def is_over(encoded: str | None) -> bool:
    """An encoded lease is over; one that cannot be read, or is missing, protects nothing."""
    try:
        told = json.loads(encoded or "")
        return Lease(Owner(**told["owner"]), float(told["expires"])).over()
    except (ValueError, TypeError, KeyError):
        return True
