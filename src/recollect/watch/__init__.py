"""A canary beside production: it notices within seconds when acknowledged memory is gone. `recollect watch`."""

from recollect.watch.alarm import Alarm
from recollect.watch.canary import Canary
from recollect.watch.memory import CanaryMemory
from recollect.watch.watching import CanaryWatch

__all__ = ["Alarm", "Canary", "CanaryMemory", "CanaryWatch"]
