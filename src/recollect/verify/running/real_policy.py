"""Which policy a store really runs under, by what its own connections say: a cell's policy is only an offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.verify.engines import policies

_WEAKEST_FIRST = ("wal-normal", "delete-full", "delete-extra", "wal-full")
_LIKE_DELETE = ("truncate", "persist")
"""What else may become of a rollback journal: to a crash it is all one."""


def real_policy(engine: str, policy: str, settings: Sequence[Mapping[str, str]]) -> str:
    """The weakest policy among the store's connections; the cell's own where they do not say, or none is theirs."""
    if engine == "sqlite":
        found = {_of_sqlite(each) for each in settings}
        known = [name for name in _WEAKEST_FIRST if name in found]
        return known[0] if known and None not in found else policy
    if engine == "postgres" and policy in ("default", "async-commit"):
        waits = [each["synchronous_commit"] != "off" for each in settings if "synchronous_commit" in each]
        return policy if not waits else "default" if all(waits) else "async-commit"
    return policy


def _of_sqlite(settings: Mapping[str, str]) -> str | None:
    journal, synchronous = settings.get("journal_mode", ""), settings.get("synchronous", "")
    if journal == "wal" and synchronous == "3":
        synchronous = "2"  # the same for a log
    wanted = {"journal_mode": "delete" if journal in _LIKE_DELETE else journal, "synchronous": synchronous}
    return next((name for name, each in policies("sqlite").items() if dict(each.read_back) == wanted), None)


def told(policy: str, real: str, settings: Sequence[Mapping[str, str]]) -> str:
    """For the report, where the two differ."""
    words = "; ".join(", ".join(f"{name}={value}" for name, value in each.items()) for each in settings)
    return f"the policy {policy} did not take: the store's own connections have {words}, and are judged as {real}"
