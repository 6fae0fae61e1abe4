"""Which policy a store really runs under, by the settings of its own connections: a cell's policy is only an offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recollect.verify.engines import policies

_WEAKEST_FIRST = ("wal-normal", "delete-full", "delete-extra", "wal-full")
_LIKE_DELETE = ("truncate", "persist")
"""Other ways to finish with a rollback journal; in a crash they all behave like `delete`."""


def real_policy(engine: str, policy: str, settings: Sequence[Mapping[str, str]]) -> str:
    """The weakest policy among the store's connections; the cell's own if they do not say, or match no policy."""
    if engine == "sqlite":
        found = {_of_sqlite(each) for each in settings}
        known = [name for name in _WEAKEST_FIRST if name in found]
        return known[0] if known and None not in found else policy
    if engine in ("postgres-ha", "patroni") and policy != "custom":
        alone = [each.get("synchronous_commit") in ("off", "local") for each in settings]
        return "asynchronous" if any(alone) else policy
    if engine == "postgres" and policy in ("default", "async-commit"):
        waits = [each["synchronous_commit"] != "off" for each in settings if "synchronous_commit" in each]
        return policy if not waits else "default" if all(waits) else "async-commit"
    return policy


def _of_sqlite(settings: Mapping[str, str]) -> str | None:
    journal, synchronous = settings.get("journal_mode", ""), settings.get("synchronous", "")
    if journal == "wal" and synchronous == "3":
        synchronous = "2"  # EXTRA is the same as FULL for a write-ahead log
    wanted = {"journal_mode": "delete" if journal in _LIKE_DELETE else journal, "synchronous": synchronous}
    return next((name for name, each in policies("sqlite").items() if dict(each.read_back) == wanted), None)


def told(policy: str, real: str, settings: Sequence[Mapping[str, str]]) -> str:
    """The sentence for the report when the two differ."""
    words = "; ".join(", ".join(f"{name}={value}" for name, value in each.items()) for each in settings)
    return f"the policy {policy} did not take: the store's own connections have {words}, and are judged as {real}"
