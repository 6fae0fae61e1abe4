"""The same cache, in sessions that are forgotten now and then: what a read missed just before is not lost as well."""

from tests.planted.cached_reads import factory as factory
from tests.planted.cached_reads import twin as twin
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis",
    "aof-always",
    "concurrent-writers",
    "forget",
    ("own-write-missing", "stale-read"),
    without=("dropped",),
)
