"""What the engine's and the driver's errors mean: was it written?

For the codes in the table, an error reply means that the command was not run, or that a script's first write was
refused: nothing was written. Any other error of a write is `OutcomeUnknown`.
"""

import re
from urllib.parse import urlsplit

from redis import exceptions

from recollect.errors import (
    CannotOpen,
    CredentialsRefused,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    RecollectError,
    Refused,
    Unreadable,
)
from recollect.stores.redis.wire import Reply, ReplyError

REJECTED = {
    "OOM": "the engine's maxmemory is reached",
    "MISCONF": "the engine cannot write to its disk",
    "READONLY": "the engine became a replica; open its primary",
    "NOREPLICAS": "too few replicas are connected (min-replicas-to-write)",
    "LOADING": "the engine is still loading its data",
    "BUSY": "the engine is busy with another script",
    "MASTERDOWN": "the engine is a replica without its primary",
    "CLUSTERDOWN": "the cluster is down",
    "MOVED": "the session belongs to another node of a cluster",
    "ASK": "the session is moving to another node of a cluster",
    "TRYAGAIN": "the session is moving to another node of a cluster",
    "NOAUTH": "the engine wants credentials",
    "NOPERM": "the user may not do this; it needs EVALSHA, EVAL and the commands of the scripts on its keys",
    "CROSSSLOT": "the sessions are in different slots of a cluster, which no write spans: write to one at a time",
    "WRONGTYPE": "a key of this session holds something that recollect did not write",
}

# Redis 6 wraps the refusal of a command in a script: "ERR Error running script …:9: -OOM …" or "…:9: WRONGTYPE …".
_CODE = re.compile(r"(?:^|-|: )(" + "|".join(REJECTED) + r")\b")

_DENIED = re.compile(r"^NOPERM|user executing the script|ACL failure in script")
"""The wordings of Redis 6, Redis 7 and Valkey."""

_UNREADABLE = frozenset({"CROSSSLOT", "WRONGTYPE"})
"""What waiting or another setting of the engine does not change."""

CONNECTING: tuple[tuple[type[Exception], type[CannotOpen], str], ...] = (
    (exceptions.BusyLoadingError, EngineUnavailable, "is still loading its data"),
    (exceptions.ResponseError, CannotOpen, "refused the connection"),
    (exceptions.TimeoutError, EngineUnavailable, "does not answer in time"),
    (exceptions.ConnectionError, EngineUnavailable, "cannot be reached"),
    (TimeoutError, EngineUnavailable, "does not answer in time"),
    (OSError, EngineUnavailable, "cannot be reached"),
)
"""The first match counts, so subclasses come first."""


def is_sentinel(info: Reply) -> bool:
    """Whether the answer to INFO is a Sentinel's."""
    return isinstance(info, bytes) and b"_mode:sentinel\r" in info  # redis_mode, or server_mode


def sentinel_refused(address: str) -> CannotOpen:
    parts = urlsplit(address)
    place = f"{parts.scheme}+sentinel://{parts.netloc}" if parts.netloc else "redis+sentinel://HOST:PORT"
    return CannotOpen(
        f"{address} is a Sentinel, which keeps no data; open the service it watches: {place}/SERVICE"
    )


def code_of(error: ReplyError) -> str | None:
    found = _CODE.search(error.text)
    return found.group(1) if found else None


def was_denied(error: ReplyError) -> bool:
    """Whether a script was stopped, maybe half-way, because its user may not run one of its commands."""
    return _DENIED.search(error.text) is not None


def write_refused(error: ReplyError) -> RecollectError:
    code = code_of(error)
    if code == "CROSSSLOT":
        return slots_differ()
    if code is None:
        return OutcomeUnknown(f"the engine answered: {error.text}")
    return NotWritten(f"{REJECTED[code]}: {error.text}")


def slots_differ() -> Refused:
    return Refused(f"{REJECTED['CROSSSLOT']}; nothing was written")


def read_refused(error: ReplyError) -> RecollectError:
    code = code_of(error)
    if code is None:
        return Unreadable(f"the engine answered: {error.text}")
    return (Unreadable if code in _UNREADABLE else EngineUnavailable)(f"{REJECTED[code]}: {error.text}")


def not_connected(error: Exception, address: str) -> CannotOpen:
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return CredentialsRefused(address, str(error))
    for kind, meaning, words in CONNECTING:
        if isinstance(error, kind):
            return meaning(f"{address} {words}" + (f" ({error})" if str(error) else ""))
    return EngineUnavailable(f"{address} cannot be reached ({type(error).__name__}: {error})")
