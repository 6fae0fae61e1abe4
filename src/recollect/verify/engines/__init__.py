"""Real engines: start, stop, kill, restart, wipe; policies, replicas, versions.

```python
engine = create("redis@7", "aof-everysec")
endpoint = engine.start()
…
engine.kill()
endpoint = engine.restart()
engine.close()  # or simply let the process end, however it ends: nothing is left behind
```
"""

from __future__ import annotations

from recollect.verify.engines.attached import attach
from recollect.verify.engines.creation import ENGINES, create, hand_over, policies, policies_in_containers
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import (
    Attached,
    Counting,
    Engine,
    Pausable,
    Policy,
    Reconfigurable,
    Replica,
    Replicated,
    Upgradable,
)
from recollect.verify.host.errors import EngineError, NotInstalled, NotOurs, StartFailed, UnknownName

__all__ = [
    "ENGINES",
    "Attached",
    "Counting",
    "Endpoint",
    "Engine",
    "EngineError",
    "EngineOptions",
    "NotInstalled",
    "NotOurs",
    "Pausable",
    "Policy",
    "Reconfigurable",
    "Replica",
    "Replicated",
    "StartFailed",
    "UnknownName",
    "Upgradable",
    "attach",
    "create",
    "hand_over",
    "policies",
    "policies_in_containers",
]
