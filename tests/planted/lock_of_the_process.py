"""A lock in Redis that whoever holds it may take again, and every task of a process is the same holder: two tasks that
append at once overwrite each other."""

from recollect.verify.engines.endpoint import Endpoint
from tests.interleavings.planted.whole_messages import LockOfTheCall, LockOfTheProcess
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis",
    "none",
    "none",
    "turns",
    ("lost-update", "dropped"),
    variant="several-callers",
    more={"sessions": 1},
)


def factory(endpoint: Endpoint) -> LockOfTheProcess:
    return LockOfTheProcess(endpoint)


def twin(endpoint: Endpoint) -> LockOfTheCall:
    return LockOfTheCall(endpoint)
