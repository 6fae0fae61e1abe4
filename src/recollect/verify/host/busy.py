"""How much longer things take on this machine right now. Time limits are meant for one that has nothing else to do."""

import os

TIMES_MAX = 4.0


def patient_s(limit_s: float) -> float:
    """The limit, or up to four times as long while more processes want to run than there are cores."""
    return limit_s * min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), TIMES_MAX)
