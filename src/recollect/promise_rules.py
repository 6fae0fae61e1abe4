"""What a rule of the table of promises is, and what many rules allow. The table is `guarantees`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One row: which faults it is for, and the rest as in `guarantees.Promise`."""

    faults: tuple[str, ...]
    allows: tuple[str, ...]
    window_s: float | None
    sentence: str
    source: str
    remedy: str = ""
    turns_max: int | None = None
    unchecked: bool = False
    syncs: int = 0
    told: bool = False
    variants: tuple[str, ...] | None = None
    """Which variants of its faults it is for; None: all."""

    def is_for(self, fault: str | None, variant: str | None) -> bool:
        """Whether it is for the fault as it happened; a variant of None is not known, and then any will do."""
        return fault in self.faults and (variant is None or self.variants is None or variant in self.variants)


# A reader may have seen what a crash then takes away. If the lost tail is everything, the store is empty.
TAIL = ("lost-tail", "non-monotonic-read")
# The data is gone or out of reach, and the caller gets an error; so does a writer whose store takes no more writes.
LOUD = ("refuses-to-start", "unreadable", "does-not-recover")
ALL = ("silent-reset", "hole", "does-not-recover", *TAIL)
