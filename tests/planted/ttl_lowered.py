"""This release cut the expiry to an hour: one append cuts short what the last release promised to keep for a week."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.five_minute_expiry import WEEK_S, Expiring
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis",
    "aof-always",
    "ttl-drift",
    "append",
    ("expired-early",),
    more={"previous": "tests.planted.ttl_lowered:last_release", "retain_s": WEEK_S},
)
EIGHT_DAYS_S = 8 * 86400


def factory(endpoint: Endpoint) -> Expiring:
    return Expiring(endpoint, 3600)


def twin(endpoint: Endpoint) -> Expiring:
    return Expiring(endpoint, EIGHT_DAYS_S)


last_release = twin
