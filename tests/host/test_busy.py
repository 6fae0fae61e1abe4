"""Time limits on a busy machine are longer, and never endless."""

import os

import pytest

from recollect.verify.host.busy import patient_s


@pytest.mark.parametrize(
    ("load", "cores", "limit_s"), [(0.1, 2, 10.0), (2.0, 2, 10.0), (5.0, 2, 25.0), (90.0, 2, 40.0)]
)
def test_as_much_longer_as_others_wait(
    load: float, cores: int, limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert patient_s(10.0) == limit_s
