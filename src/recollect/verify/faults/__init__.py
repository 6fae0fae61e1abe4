"""Faults, as a table: every name of the design, what it verifies, and what it does not."""

from recollect.verify.faults.fault import Fault
from recollect.verify.faults.process import PROCESS_FAULTS

FAULTS: dict[str, Fault] = {fault.name: fault for fault in (*PROCESS_FAULTS,)}

__all__ = ["FAULTS", "Fault"]
