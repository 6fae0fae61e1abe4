"""The expiry of five minutes on a server that frees lazily and looks for expired keys as hard as it can
(`lazyfree.conf`): how memory is freed is no excuse, and no accusation."""

from pathlib import Path

from tests.planted import five_minute_expiry
from tests.planted.planted import Planted

factory, twin = five_minute_expiry.factory, five_minute_expiry.twin
CONFIG = Path(__file__).with_name("lazyfree.conf")
PLANTED = Planted(
    "redis",
    "custom",
    five_minute_expiry.PLANTED.fault,
    five_minute_expiry.PLANTED.workload,
    five_minute_expiry.PLANTED.anomalies,
    more={**five_minute_expiry.PLANTED.more, "engine_config": str(CONFIG)},
)
