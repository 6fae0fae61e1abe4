"""WAL with synchronous=NORMAL, as most guides recommend it: the store decides, whatever the cell is called."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.correct.default_settings import DefaultSettings

CELLS = (
    Cell(
        "sqlite",
        "wal-full",
        "power-loss",
    ),
    Cell("sqlite", "wal-normal", "power-loss"),
)


def factory(endpoint: Endpoint) -> DefaultSettings:
    store = DefaultSettings(endpoint)
    store.db.execute("PRAGMA journal_mode=WAL")
    store.db.execute("PRAGMA synchronous=NORMAL")
    return store
