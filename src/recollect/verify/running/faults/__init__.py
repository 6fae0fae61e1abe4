"""The table of faults: each by its name, with what it verifies and what it does not."""

from recollect.verify.running.faults.at_line import LINE_FAULTS
from recollect.verify.running.faults.bit_rot import ROT_FAULTS
from recollect.verify.running.faults.clock import CLOCK_FAULTS
from recollect.verify.running.faults.compound import combined, is_compound
from recollect.verify.running.faults.disk import DISK_FAULTS
from recollect.verify.running.faults.fault import Fault, checked_for_groups
from recollect.verify.running.faults.groups import GROUP_FAULTS
from recollect.verify.running.faults.network import NETWORK_FAULTS
from recollect.verify.running.faults.policy_change import CONFIG_FAULTS
from recollect.verify.running.faults.process import PROCESS_FAULTS
from recollect.verify.running.faults.refusals import REFUSAL_FAULTS
from recollect.verify.running.faults.replication import REPLICATION_FAULTS
from recollect.verify.running.faults.restore import RESTORE_FAULTS
from recollect.verify.running.faults.storage import STORAGE_FAULTS
from recollect.verify.running.faults.version import VERSION_FAULTS

FAULTS: dict[str, Fault] = {
    fault.name: checked_for_groups(fault)
    for family in (
        PROCESS_FAULTS,
        LINE_FAULTS,
        DISK_FAULTS,
        STORAGE_FAULTS,
        ROT_FAULTS,
        RESTORE_FAULTS,
        NETWORK_FAULTS,
        REFUSAL_FAULTS,
        CLOCK_FAULTS,
        CONFIG_FAULTS,
        REPLICATION_FAULTS,
        VERSION_FAULTS,
        GROUP_FAULTS,
    )
    for fault in family
}


def fault_named(name: str) -> Fault:
    """One fault, or two at once (``a+b``); raises `KeyError`, or `CannotCombine`, which names the part."""
    return combined(name, FAULTS) if is_compound(name) else FAULTS[name]


__all__ = ["FAULTS", "Fault", "fault_named"]
