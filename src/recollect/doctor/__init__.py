"""What a live engine would lose with its settings: `examine(url)`, and one module per engine. Read-only."""

from recollect.doctor.diagnosis import Diagnosis, Symptom
from recollect.doctor.examination import examine, scrub, secrets_of, shown

__all__ = ["Diagnosis", "Symptom", "examine", "scrub", "secrets_of", "shown"]
