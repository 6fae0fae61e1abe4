"""Is everything that was acknowledged still there? `audit(url)` reads a whole memory, and changes nothing."""

from recollect.audit.auditing import RATE, audit
from recollect.audit.finding import AuditFinding
from recollect.audit.report import AuditReport
from recollect.audit.resuming import AuditProgress

__all__ = ["RATE", "AuditFinding", "AuditProgress", "AuditReport", "audit"]
