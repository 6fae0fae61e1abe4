"""Session services that keep an id without its blanks: one that says so is believed, one that does not is read."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from recollect.errors import Refused
from recollect.verify.target.driving.events import Events


@dataclass
class Session:
    id: str
    events: list[Any] = field(default_factory=list)


class Trimming:
    says_so = True

    def __init__(self) -> None:
        self.kept: dict[str, list[Any]] = {}

    def create_session(self, *, app_name: str, user_id: str, session_id: str) -> Session:
        return Session(session_id.strip() if self.says_so else session_id)

    def get_session(self, *, app_name: str, user_id: str, session_id: str) -> Session | None:
        found = self.kept.get(session_id.strip())
        return (
            None if found is None else Session(session_id.strip() if self.says_so else session_id, [*found])
        )

    def append_event(self, session: Session, event: dict[str, Any]) -> None:
        self.kept.setdefault(session.id.strip(), []).append(event)


class Silent(Trimming):
    says_so = False


def test_a_service_that_says_it_cuts_blanks_off_has_no_such_session() -> None:
    service = Events(Trimming())
    with pytest.raises(Refused, match="kept as 'user'"):
        service.append("user ", [{"content": "first"}])
    service.append("user", [{"content": "second"}])
    assert service.history("user ") == []
    assert service.history("user") == [{"content": "second"}]


def test_one_that_does_not_say_so_mixes_two_sessions() -> None:
    service = Events(Silent())
    service.append("user", [{"content": "first"}])
    assert service.history("user ") == [{"content": "first"}]
