"""The attack by flipped bits runs, and finds a store that believes what the disk gives it."""

from collections.abc import Iterable

import pytest
from tools.attack import flips
from tools.attack.assault import Assault

from recollect import Damaged, Message, Stored
from recollect.checksum import CHECKSUM_BYTES
from recollect.message import decode_all
from recollect.stores.sqlite import rows

SAMPLES = {"sqlite": 150, "redis": 24, "redis-snapshot": 2, "postgres": 40, "postgres-without-checksums": 40}


@pytest.mark.parametrize("name", SAMPLES)
def test_our_stores_hold(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A sample; `python bench/flips.py` has 10,000 of each."""
    monkeypatch.setitem(flips.ENGINES, name, flips.ENGINES[name]._replace(sessions=flips.SESSIONS_IN_A_FILE))
    assault = Assault(300.0, seed=1, limit=SAMPLES[name])
    flips.attack(assault, name)
    assert assault.findings == []
    assert assault.counts[f"flips in {name}"] >= SAMPLES[name]
    noticed = [f"sessions of {name} damaged", f"sessions of {name} loud", f"flips in {name} {flips.NOTHING}"]
    assert sum(assault.counts[what] for what in noticed) > 0


def test_a_store_without_checksums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(raws: Iterable[bytes]) -> list[Message | Damaged]:
        return decode_all([raw[:-CHECKSUM_BYTES] for raw in raws])

    monkeypatch.setattr(rows, "decode_all", believing)
    assault = Assault(300.0, seed=1, limit=150)
    flips.attack(assault, "sqlite")
    assert any("wrong" in finding for finding in assault.findings)


SAID = [Message("user", "one"), Message("user", "two")]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([Stored(1, SAID[0]), Stored(2, SAID[1])], "right"),
        ([Stored(1, Damaged(b"x", "why")), Stored(2, SAID[1])], "damaged"),
        ([Stored(1, SAID[0])], "short"),
        ([], "short"),
        ([Stored(1, SAID[1]), Stored(2, SAID[1])], "wrong"),
        ([Stored(1, SAID[0]), Stored(2, SAID[1]), Stored(3, SAID[1])], "wrong"),
        ([Stored(2, SAID[1]), Stored(1, SAID[0])], "out of order"),
        ([Stored(1, SAID[0]), Stored(9, SAID[1])], "wrong"),
        ([Stored(1, SAID[0]), Stored(2, Damaged(b"", "gone")), Stored(9, SAID[1])], "damaged"),
        ([Stored(1, SAID[1]), Stored(2, Damaged(b"", "gone")), Stored(9, SAID[0])], "wrong"),
        ([Stored(1, Damaged(b"", "gone")), Stored(2, Message("user", "foreign"))], "wrong"),
    ],
)
def test_what_is_allowed(found: list[Stored], verdict: str) -> None:
    assert flips.judged(found, dict(enumerate(SAID, 1))).partition(":")[0] == verdict
