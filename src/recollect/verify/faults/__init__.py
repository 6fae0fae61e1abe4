"""Faults, as a table: every name of the design, what it verifies, and what it does not."""

from recollect.verify.faults.clock import CLOCK_FAULTS
from recollect.verify.faults.fault import Fault
from recollect.verify.faults.network import NETWORK_FAULTS
from recollect.verify.faults.process import PROCESS_FAULTS

FAULTS: dict[str, Fault] = {fault.name: fault for fault in (*PROCESS_FAULTS, *NETWORK_FAULTS, *CLOCK_FAULTS)}

__all__ = ["FAULTS", "Fault"]
