"""Session ids are brought into a normal form: two people whose names are written alike share a memory."""

import unicodedata

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("cross-session-leak",), variant="one-writer")


class Normalised(RedisList):
    def key(self, session: str) -> str:
        return super().key(unicodedata.normalize("NFC", session))


def factory(endpoint: Endpoint) -> Normalised:
    return Normalised(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
