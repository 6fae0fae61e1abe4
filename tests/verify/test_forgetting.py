"""What is forgotten has neighbours, however few clients there are."""

import random
from itertools import islice

import pytest

from recollect.verify.running.workloads import AppendTurn, Planner
from recollect.verify.running.workloads.rewriting import forget
from recollect.verify.target.pipe import Forget


@pytest.mark.parametrize(
    ("number", "writers", "sessions"), [(0, 1, 3), (7, 1, 3), (0, 3, 1), (2, 3, 1), (4, 3, 1)]
)
def test_one_that_is_alone_talks_in_every_session(number: int, writers: int, sessions: int) -> None:
    planner = Planner(number, random.Random(1), forget.sessions, frozenset(), writers=writers)
    said = list(islice(forget.plan(planner), 400))
    assert len({intent.session for intent in said if isinstance(intent, AppendTurn)}) == sessions
    assert len({intent.session for intent in said if isinstance(intent, Forget)}) == sessions
