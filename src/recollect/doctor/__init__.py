"""What a live engine would lose with its settings, read-only: `examine(url)`, and one module per engine."""

from recollect.doctor.diagnosis import Diagnosis, Symptom
from recollect.doctor.examination import examine, scrub, secrets_of, shown

__all__ = ["Diagnosis", "Symptom", "examine", "scrub", "secrets_of", "shown"]
