"""What an alarm says, in words that fit the numbers."""

import pytest

from recollect.audit.source import EngineFacts
from recollect.watch.alarm import CanaryLoss, named


@pytest.mark.parametrize(
    ("lost", "kept", "told"),
    [
        (1, 1, "1 acknowledged message is gone, 1 is there: "),
        (1806, 0, "1,806 acknowledged messages are gone, 0 are there: "),
    ],
)
def test_one_is_and_several_are(lost: int, kept: int, told: str) -> None:
    facts = EngineFacts("store", "run", 1.0)
    loss = CanaryLoss(lost, kept, 1.0, position=9, acknowledged=9, expired=False)
    alarm = named(loss, facts, facts, heard_at=2.0, window_s=None)
    assert (alarm.name, alarm.lost) == ("deleted", lost)
    assert alarm.sentence.startswith(told)
