"""It says that it keeps the last fifty of a session, and keeps ten."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.keeps_the_last import Window
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "none", "trimmed", ("trimmed", "dropped"), variant="one-writer")


class Shorter(Window):
    traits = ("keeps_last=50",)


def factory(endpoint: Endpoint) -> Shorter:
    return Shorter(endpoint)


def twin(endpoint: Endpoint) -> Window:
    return Window(endpoint)
