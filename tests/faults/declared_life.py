"""A store that says itself that it keeps memory for five minutes, and does."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.five_minute_expiry import Expiring


class FiveMinutes(Expiring):
    retention_s = 300.0


def factory(endpoint: Endpoint) -> FiveMinutes:
    return FiveMinutes(endpoint, 300)
