"""`RecollectSessionService` answers as ADK's own in-memory service does."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai.types import Content, Part
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from pydantic import Field

from recollect import Message, NotWritten, OutcomeUnknown, Refused, Store, open_store
from recollect.adapters import carrying
from recollect.adapters.adk import CHANGES_KEPT, RecollectSessionService, SessionPlaces
from tests.adapters.not_json import circle, deep
from tests.adapters.oracle import Compared, World, compared
from tests.adapters.unsteady import LOST_AFTER, REFUSED, Unsteady, lost_for_good
from tests.contract.conftest import Place

TEXT = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=3,
)
PARTS = st.one_of(
    st.builds(lambda text: Part(text=text), TEXT),
    st.builds(lambda data: Part.from_bytes(data=data, mime_type="image/png"), st.binary(max_size=6)),
    st.builds(
        lambda args: Part.from_function_call(name="f", args=args), st.dictionaries(TEXT, JSON, max_size=2)
    ),
)
CONTENTS = st.none() | st.builds(
    Content, role=st.sampled_from(["user", "model"]), parts=st.lists(PARTS, max_size=2)
)
KEYS = st.sampled_from(["k", "l", "app:k", "user:k", "user:l", "temp:k", "other:k", "app:"])
STATES = st.dictionaries(KEYS, JSON, max_size=3)
USERS = st.sampled_from(["u", "u/v", "v"])
SESSIONS = st.sampled_from(["s", "t", "S", "s/t"])


class Sessions(Compared):
    """Beside `InMemorySessionService`. Session objects are read anew before each append, as a runner does it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ours: BaseSessionService = RecollectSessionService(self.store)
        self.oracle: BaseSessionService = InMemorySessionService()
        self.last: Event | None = None
        self.clock = 2_000_000_000.0  # after the time at which any session here is created

    @rule(user=USERS, session=SESSIONS, state=STATES)
    def create(self, user: str, session: str, state: dict[str, Any]) -> None:
        ours, oracle = self._both(
            lambda service: service.create_session(
                app_name=self.session, user_id=user, session_id=session, state=dict(state)
            )
        )
        assert _shown(ours) == _shown(oracle)

    @rule(
        user=USERS,
        session=SESSIONS,
        content=CONTENTS,
        state=STATES,
        partial=st.sampled_from([None, None, None, True]),
        later=st.sampled_from([1.0, 0.0, -5.0]),
    )
    def append(
        self, user: str, session: str, content: Any, state: dict[str, Any], partial: Any, later: float
    ) -> None:
        self.clock += later
        self.last = Event(
            id=f"event-{self.clock}-{content is None}",
            author="user",
            content=content,
            partial=partial,
            timestamp=self.clock,
            actions=EventActions(state_delta=state),
        )
        ours, oracle = self._both(lambda service: self._append(service, user, session, self.last))
        assert ours == oracle

    @rule(user=USERS, session=SESSIONS)
    def append_it_again(self, user: str, session: str) -> None:
        if self.last is None:
            return
        self.last.actions.state_delta = {}
        ours, oracle = self._both(lambda service: self._append(service, user, session, self.last))
        assert ours == oracle

    @rule(user=USERS, session=SESSIONS)
    def delete(self, user: str, session: str) -> None:
        self._both(
            lambda service: service.delete_session(app_name=self.session, user_id=user, session_id=session)
        )

    @rule(
        user=USERS,
        session=SESSIONS,
        recent=st.none() | st.integers(0, 3),
        back=st.none() | st.sampled_from([0.0, 1.0, 3.0]),
    )
    def get(self, user: str, session: str, recent: int | None, back: float | None) -> None:
        since = None if back is None else self.clock - back
        config = GetSessionConfig(num_recent_events=recent, after_timestamp=since)
        ours, oracle = self._both(
            lambda service: service.get_session(
                app_name=self.session, user_id=user, session_id=session, config=config
            )
        )
        assert _shown(ours) == _shown(oracle)

    @rule(user=st.none() | USERS)
    def list_them(self, user: str | None) -> None:
        ours, oracle = self._both(lambda service: service.list_sessions(app_name=self.session, user_id=user))
        assert sorted(map(str, map(_shown, ours.sessions))) == sorted(map(str, map(_shown, oracle.sessions)))

    @invariant()
    def the_same_is_there(self) -> None:
        for user in ("u", "u/v"):
            for session in ("s", "s/t"):
                ours, oracle = self._both(
                    lambda service, user=user, session=session: service.get_session(
                        app_name=self.session, user_id=user, session_id=session
                    )
                )
                assert _shown(ours) == _shown(oracle)
        ours, oracle = self._both(lambda service: service.get_user_state(app_name=self.session, user_id="u"))
        assert ours == oracle

    async def _append(self, service: BaseSessionService, user: str, name: str, event: Event | None) -> Any:
        session = await service.get_session(app_name=self.session, user_id=user, session_id=name)
        if session is None:
            session = Session(id="nowhere", app_name=self.session, user_id=user)
        assert event is not None
        answer = await service.append_event(session, event.model_copy(deep=True))
        return answer, _shown(session)

    def _both(self, call: Any) -> tuple[Any, Any]:
        return self.run(_outcome(call(self.ours))), self.run(_outcome(call(self.oracle)))


async def _outcome(work: Any) -> Any:
    """What it gives, or the error that it raises: both are answers."""
    try:
        return await work
    except (AlreadyExistsError, SessionNotFoundError) as error:
        return type(error), str(error)


def _shown(session: Session | None) -> Any:
    """Without the time of its creation, which is each service's own."""
    if not isinstance(session, Session):
        return session
    updated = session.last_update_time if session.last_update_time > 1_900_000_000 else "when it was created"
    return (
        session.app_name,
        session.user_id,
        session.id,
        dict(sorted(session.state.items())),
        session.events,
        updated,
    )


def test_it_answers_as_the_in_memory_service(place: Place) -> None:
    compared(Sessions, place.url, steps=12)


def _says(text: str, **state: Any) -> Event:
    content = Content(role="user", parts=[Part(text=text)])
    delta = {key.replace("__", ":"): value for key, value in state.items()}
    return Event(author="user", content=content, actions=EventActions(state_delta=delta))


async def _got(service: RecollectSessionService, app: str, name: str = "s") -> Session:
    found = await service.get_session(app_name=app, user_id="u", session_id=name)
    assert found is not None
    return found


def _texts(session: Session) -> list[str]:
    return [cast(Any, event.content).parts[0].text for event in session.events]


async def test_of_two_that_read_the_same_one_is_told(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    first = await service.create_session(app_name=session, user_id="u", session_id="s")
    second = await _got(service, session)
    await service.append_event(first, _says("first", app__n=1))
    with pytest.raises(StaleSessionError):
        await service.append_event(second, _says("second", app__n=2, user__n=2, n=2))
    await service.append_event(first, _says("third"))
    now = await _got(service, session)
    assert _texts(now) == ["first", "third"]
    assert now.state == {"app:n": 1}
    assert (second.events, second.state) == ([], {})


async def test_who_read_before_a_delete_cannot_append_after_it(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s")
    await service.delete_session(app_name=session, user_id="u", session_id="s")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(held, _says("late"))
    await service.create_session(app_name=session, user_id="u", session_id="s")
    with pytest.raises(StaleSessionError):
        await service.append_event(held, _says("later"))
    assert (await _got(service, session)).events == []


async def test_an_event_of_a_deleted_session_is_new_to_the_next(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    event = _says("again")
    for _ in range(2):
        await service.create_session(app_name=session, user_id="u", session_id="s")
        await service.append_event(await _got(service, session), event.model_copy(deep=True))
        assert _texts(await _got(service, session)) == ["again"]
        await service.delete_session(app_name=session, user_id="u", session_id="s")


async def test_what_a_broken_deletion_left_is_not_in_the_next(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s", state={"n": 1})
    await service.append_event(held, _says("old"))
    ends = {
        f"{kind}/{session}/u/s": [Message("state", [], metadata={"gone": True})]
        for kind in ("adk", "adk-state")
    }
    await store.append_many(ends)  # and the process died here
    assert await service.get_session(app_name=session, user_id="u", session_id="s") is None
    assert (await service.list_sessions(app_name=session)).sessions == []
    made = await service.create_session(app_name=session, user_id="u", session_id="s")
    assert (made.events, made.state) == ([], {})


@pytest.mark.parametrize(
    "troubles",
    [[None, REFUSED], [None, None, REFUSED], lost_for_good()],
    ids=["before the events", "before the state", "unknown"],
)
async def test_a_deletion_that_broke_is_finished_by_the_next(
    store: Store, session: str, troubles: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,) * len(carrying.PAUSES_S))
    steady = RecollectSessionService(store)
    held = await steady.create_session(app_name=session, user_id="u", session_id="s", state={"n": 1})
    await steady.append_event(held, _says("secret"))
    service = RecollectSessionService(cast(Store, Unsteady(store, *troubles)))
    with pytest.raises((NotWritten, OutcomeUnknown)):
        await service.delete_session(app_name=session, user_id="u", session_id="s")
    await service.delete_session(app_name=session, user_id="u", session_id="s")
    assert await service.get_session(app_name=session, user_id="u", session_id="s") is None
    for place in SessionPlaces(session, "u", "s").own:
        assert await store.history(place) == []


async def test_blanks_around_an_id_make_it_another_session(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    for name in ("s", "s ", "s\u00a0"):
        held = await service.create_session(app_name=session, user_id="u", session_id=name)
        await service.append_event(held, _says(f"in {name!r}"))
    for name in ("s", "s ", "s\u00a0"):
        assert _texts(await _got(service, session, name)) == [f"in {name!r}"]
    made = await service.create_session(app_name=session, user_id="u", session_id=" ")
    assert made.id.strip()


async def test_an_answer_that_is_lost_stores_nothing_twice(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s")
    unsteady = Unsteady(store, LOST_AFTER)
    lossy = RecollectSessionService(cast(Store, unsteady))
    await lossy.append_event(held, _says("hello", user__n=1))
    assert not unsteady.troubles
    await lossy.append_event(held, _says("there"))
    assert _texts(await _got(service, session)) == ["hello", "there"]


async def test_what_stays_unknown_says_what_to_do_without_a_turn_id(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    lossy = RecollectSessionService(cast(Store, Unsteady(store, *lost_for_good() * 3)))
    with pytest.raises(OutcomeUnknown, match="get the session"):
        await lossy.create_session(app_name=session, user_id="u", session_id="s")
    held = await _got(lossy, session)
    event = _says("hello")
    with pytest.raises(OutcomeUnknown, match="append the same event again"):
        await lossy.append_event(held, event)
    lossy._store.troubles.clear()  # type: ignore[attr-defined]
    await lossy.append_event(held, event)
    await lossy.append_event(held, _says("there"))
    assert _texts(await _got(lossy, session)) == ["hello", "there"]


async def test_the_same_text_again_is_another_event(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s")
    for _ in range(3):
        await service.append_event(held, _says("yes"))
    assert _texts(await _got(service, session)) == ["yes"] * 3


async def test_many_changes_of_state_are_summed_up(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s", state={"kept": 0})
    count = 2 * CHANGES_KEPT + 5
    for number in range(count):
        await service.append_event(held, _says(str(number), n=number, user__n=number, app__n=number))
    now = await _got(service, session)
    assert now.state == {"kept": 0, "n": count - 1, "user:n": count - 1, "app:n": count - 1}
    assert len(now.events) == count
    for place in (f"adk-state/{session}/u/s", f"adk-user/{session}/u", f"adk-app/{session}"):
        assert len(await store.history(place)) < 2 * CHANGES_KEPT


@pytest.mark.parametrize("unsteady", [[REFUSED], lost_for_good()], ids=["refused", "unknown"])
async def test_an_event_is_stored_even_if_its_state_cannot_be_summed_up(
    store: Store, session: str, unsteady: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,) * len(carrying.PAUSES_S))
    service = RecollectSessionService(cast(Store, Unsteady(store, *[None] * CHANGES_KEPT, *unsteady)))
    held = await service.create_session(app_name=session, user_id="u", session_id="s", state={"n": 0})
    for number in range(1, 2 * CHANGES_KEPT):
        await service.append_event(held, _says(str(number), n=number))
        assert len(held.events) == number
    assert not cast(Any, service._store).troubles
    now = await _got(service, session)
    assert (now.state, now.events) == ({"n": 2 * CHANGES_KEPT - 1}, held.events)
    assert len(await store.history(f"adk-state/{session}/u/s")) < CHANGES_KEPT


async def test_a_state_that_nobody_could_sum_up_is_read_whole(store: Store, session: str) -> None:
    count = 2 * CHANGES_KEPT + 3
    changes = [Message("state", [], metadata={"set": {f"k{number}": number}}) for number in range(count)]
    await store.append(f"adk-user/app-{session}/u", changes)
    state = await RecollectSessionService(store).get_user_state(app_name=f"app-{session}", user_id="u")
    assert state == {f"k{number}": number for number in range(count)}


async def test_writers_of_one_app_do_not_disturb_each_other(store: Store, session: str) -> None:
    service = RecollectSessionService(store)

    async def talk(name: str) -> None:
        held = await service.create_session(app_name=session, user_id="u", session_id=name)
        for number in range(CHANGES_KEPT // 4):
            await service.append_event(held, _says(str(number), **{f"app__{name}": number}))

    await asyncio.gather(*[talk(f"s{number}") for number in range(8)])
    state = (await _got(service, session, "s0")).state
    assert state == {f"app:s{number}": CHANGES_KEPT // 4 - 1 for number in range(8)}


async def test_branches_of_a_run_share_a_session(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s")
    await asyncio.gather(*[service.append_event(held, _says(str(number))) for number in range(10)])
    assert sorted(_texts(await _got(service, session))) == sorted(map(str, range(10)))


async def test_of_many_that_create_the_same_one_does(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    answers = await asyncio.gather(
        *[service.create_session(app_name=session, user_id="u", session_id="s") for _ in range(6)],
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers].count(Session) == 1
    assert [type(answer) for answer in answers].count(AlreadyExistsError) == 5


async def test_a_session_without_a_marker_is_fresh_if_it_ends_with_the_last_event(
    store: Store, session: str
) -> None:
    service = RecollectSessionService(store)
    await service.create_session(app_name=session, user_id="u", session_id="s")
    held = Session.model_validate_json((await _got(service, session)).model_dump_json())
    await service.append_event(held, _says("first"))
    copy = Session.model_validate_json(held.model_dump_json())
    await service.append_event(held, _says("second"))
    with pytest.raises(StaleSessionError):
        await service.append_event(copy, _says("third"))


async def test_what_is_not_json_is_refused_before_anything_is_written(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    with pytest.raises(Refused, match="state"):
        await service.create_session(
            app_name=session, user_id="u", session_id="s", state={"app:f": lambda: 1, "n": 1}
        )
    for value in (circle(), deep()):
        with pytest.raises(Refused, match="state"):
            await service.create_session(app_name=session, user_id="u", session_id="s", state={"of": value})
    made = await service.create_session(app_name=session, user_id="u", session_id="s")
    assert made.state == {}
    for value in (object(), circle(), deep()):
        with pytest.raises(Refused, match="event"):
            await service.append_event(made, Event(author="user", custom_metadata={"of": value}))
        with pytest.raises(Refused, match="state"):
            await service.append_event(made, _says("hello", of=value))
    assert (await _got(service, session)).events == made.events == []


async def test_bytes_in_a_state_are_the_text_that_the_event_has(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    made = await service.create_session(app_name=session, user_id="u", session_id="s", state={"a": b"\xff"})
    assert made.state == {"a": "_w=="}
    await service.append_event(made, _says("hello", b=b"\x00\xff"))
    read = await _got(service, session)
    assert read.state == {"a": "_w==", "b": "AP8="}
    assert read.events[0].actions.state_delta == {"b": "AP8="}


async def test_others_can_read_it(store: Store, session: str) -> None:
    service = RecollectSessionService(store)
    held = await service.create_session(app_name=session, user_id="u", session_id="s")
    await service.append_event(held, _says("hello", n=1))
    place = f"adk/{session}/u/s"
    [item] = await store.history(place)
    message = cast(Message, item.message)
    assert (message.role, message.text) == ("user", "hello")
    await store.append(place, [Message("assistant", "from elsewhere")])
    assert _texts(await _got(service, session)) == ["hello", "from elsewhere"]


async def test_a_damaged_event_keeps_its_place(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        service = RecollectSessionService(store)
        held = await service.create_session(app_name="a", user_id="u", session_id="s")
        for text in ("before", "broken", "after"):
            await service.append_event(held, _says(text))
        with closing(sqlite3.connect(tmp_path / "memory.db")) as database, database:
            database.execute(
                "UPDATE recollect_messages SET record = CAST(replace(CAST(record AS TEXT), 'broken', 'Broken')"
                " AS BLOB)"
            )
        texts = _texts(await _got(service, "a"))
        assert (texts[0], texts[2]) == ("before", "after")
        assert "cannot be read" in texts[1]


# ---- a whole agent


class Scripted(BaseLlm):
    """Answers from a list, and keeps what it was asked."""

    model: str = "scripted"
    answers: list[str]
    asked: list[int] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append(len(llm_request.contents))
        yield LlmResponse(content=Content(role="model", parts=[Part(text=self.answers.pop(0))]))


async def test_an_agent_remembers_in_another_process(store: Store, session: str) -> None:
    """Two runners that share nothing but the store."""
    model = Scripted(answers=["Hello, Li.", "Li."])
    await RecollectSessionService(store).create_session(app_name=session, user_id="u", session_id="s")
    for question in ("I am Li.", "Who am I?"):
        agent = LlmAgent(name="greeter", model=model, output_key="user:said")
        runner = Runner(app_name=session, agent=agent, session_service=RecollectSessionService(store))
        said = Content(role="user", parts=[Part(text=question)])
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=said):
            pass
    now = await _got(RecollectSessionService(store), session)
    assert model.asked == [1, 3]
    assert _texts(now) == ["I am Li.", "Hello, Li.", "Who am I?", "Li."]
    assert now.state == {"user:said": "Li."}
