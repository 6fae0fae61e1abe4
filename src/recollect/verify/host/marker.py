"""What proves that a thing is ours to remove.

A name proves nothing: anybody may call a database `recollect_production`. So whatever outlives a killed run, and may be
removed by a later one, gets a name that is the digest of a random proof, and keeps the proof inside it: in a lease,
a file or a label. Nobody can make such a name without knowing its proof, and no proof can be found for a name that
already exists. What cannot be read, or does not match, is not ours and stays.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

_PROOF = re.compile(r"[0-9a-f]{32}")
_NAME_DIGITS = 20


@dataclass(frozen=True)
class Marker:
    proof: str
    """Random; 32 hexadecimal digits."""

    @classmethod
    def new(cls) -> Marker:
        return cls(secrets.token_hex(16))

    @property
    def name(self) -> str:
        """Part of the name of everything that carries the proof; 20 hexadecimal digits."""
        return hashlib.sha256(f"recollect {self.proof}".encode()).hexdigest()[:_NAME_DIGITS]

    def proves(self, name: str) -> bool:
        return _PROOF.fullmatch(self.proof) is not None and name == self.name
