"""A session service for Google's Agent Development Kit, kept in a recollect store.

    from google.adk.runners import Runner
    from recollect import open_store
    from recollect.adapters.adk import RecollectSessionService

    async with open_store("redis://localhost") as store:
        runner = Runner(app_name="helpdesk", agent=agent, session_service=RecollectSessionService(store))

An ADK session is two sessions of the store: one with its events, a message each, and one with its state. The state
shared by a user's sessions is a third, the state shared by an app's sessions a fourth. An event is appended to all
that it changes in one step (`append_many`), so an event is never there without its state, or the reverse.

State is kept as the changes made to it, so nobody has to read it in order to change it, and writers of the same app
do not wait for each other. Every now and then the changes are replaced by their sum.

A session object remembers the position it was read at. An event is appended with that position as `expect`: if
somebody else has appended since, nothing is written and `StaleSessionError` is raised.

An event that can no longer be read keeps its place, as an event that says so.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from recollect.adapters.carrying import CALL_AGAIN, carried, damage_note
from recollect.composite import composite_id
from recollect.errors import Conflict, MissingExtra, RecollectError, Refused
from recollect.fingerprint import fingerprint
from recollect.message import Damaged, Message
from recollect.store import Store, Stored

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.sessions.base_session_service import (
        BaseSessionService,
        GetSessionConfig,
        ListSessionsResponse,
    )
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from google.genai.types import Content, Part
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise MissingExtra(
        f"the Agent Development Kit is not installed ({error.name}): pip install 'recollect[adk]'"
    ) from error

log = logging.getLogger("recollect")

CHANGES_KEPT = 32
"""After about this many changes of a state, they are replaced by their sum."""

READS_MAX = 8
"""How often a session is read again because somebody was appending to it meanwhile."""

_GET_IT = "get the session, which shows whether it was created"

_STALE = (
    "the session was changed since it was read, so the event is not stored: "
    "get the session again, then append to that"
)


class RecollectSessionService(BaseSessionService):
    """All sessions of all apps and users, in an open store. The caller closes the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """A new session with this state; `AlreadyExistsError` if there is one with this id."""
        # Blanks around an id are part of it, unlike in ADK's own services: "a" and "a " may be two people's.
        name = session_id if session_id and session_id.strip() else str(uuid.uuid4())
        places = SessionPlaces(app_name, user_id, name)
        scopes = _scopes(state or {})
        created = {
            "app_name": app_name,
            "user_id": user_id,
            "id": name,
            "born": uuid.uuid4().hex,
            "time": time.time(),
        }
        turns = {
            places.state: [_change(scopes[""], created=created)],
            **places.shared(scopes),
        }
        while True:
            position = await self._vacant(places)

            async def write(turn: str, position: int = position) -> object:
                return await self._store.append_many(turns, turn=turn, expect={places.state: position})

            try:
                await carried(write, _GET_IT)
            except Conflict:
                continue  # somebody creates or deletes it at the same time
            break
        made = await self.get_session(app_name=app_name, user_id=user_id, session_id=name)
        if made is None:
            raise SessionNotFoundError(f"Session {name} was deleted while it was being created.")
        return made

    async def _vacant(self, places: "SessionPlaces") -> int:
        """The state's position, if there is no such session. Removes what a deletion left behind."""
        # Read first: without a session, whatever is there up to this position belongs to a deleted one.
        events_at = await self._store.position(places.events)
        state_at = await self._store.position(places.state)
        changes = await self._changes(places.state)
        if _SummedState(changes).exists:
            raise AlreadyExistsError(f"Session with id {places.session_id} already exists.")
        if await self._store.history(places.events, last=1):
            await self._emptied(places.events, events_at)
        if changes:
            return await self._emptied(places.state, state_at)
        return state_at

    async def _emptied(self, place: str, position: int) -> int:
        """Removes all messages and returns the position after that; the old one if somebody has changed it
        meanwhile."""

        async def write(turn: str) -> int:
            return (await self._store.replace(place, [], turn=turn, expect=position)).last

        try:
            return await carried(write, CALL_AGAIN)
        except Conflict:
            return position

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session with its events and the state of all three scopes; None if there is none."""
        places = SessionPlaces(app_name, user_id, session_id)
        for _ in range(READS_MAX):
            position = await self._store.position(places.events)
            changes, items = await asyncio.gather(
                self._changes(places.state), self._recent(places.events, config or GetSessionConfig())
            )
            folded = _SummedState(changes)
            if not folded.exists:
                return None
            last = items[-1:] or await self._store.history(places.events, last=1)
            after, user, app = await asyncio.gather(
                self._store.position(places.events), self._changes(places.user), self._changes(places.app)
            )
            if after == position:
                break  # nobody appended meanwhile, so the events and the state belong together
        session = _session(folded, last, _SummedState(app), _SummedState(user))
        session.events = [_event(item) for item in items]
        session._storage_update_marker = _marker(folded.born, position)
        return session

    async def _changes(self, place: str) -> list[Stored]:
        """Those of a state, which are few: a read with a limit is cheaper than one that may return anything."""
        items = await self._store.history(place, last=2 * CHANGES_KEPT)
        return items if len(items) < 2 * CHANGES_KEPT else await self._store.history(place)

    async def _recent(self, place: str, config: GetSessionConfig) -> list[Stored]:
        count, since = config.num_recent_events, config.after_timestamp
        if count == 0:
            return []
        if since is None:
            return await self._store.history(place, last=count)
        window = 64
        while True:
            asked = window if count is None else min(window, count)
            items = await self._store.history(place, last=asked)
            before = [index for index, item in enumerate(items) if _is_before(item, since)]
            if before:
                return items[before[-1] + 1 :]
            if len(items) < asked or asked == count:
                return items
            window *= 4

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users, without their events; the latest updated last."""
        owner = (app_name,) if user_id is None else (app_name, user_id)
        prefix = composite_id(_STATE, *owner, "")
        app = _SummedState(await self._changes(composite_id(_APP, app_name)))
        users: dict[str, _SummedState] = {}
        sessions = []
        async for place in self._store.sessions(prefix=prefix):
            folded = _SummedState(await self._changes(place))
            if not folded.exists:
                continue
            places = SessionPlaces(app_name, folded.created["user_id"], folded.created["id"])
            if places.user not in users:
                users[places.user] = _SummedState(await self._changes(places.user))
            last = await self._store.history(places.events, last=1)
            sessions.append(_session(folded, last, app, users[places.user]))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes a session with its events and its own state. What it shares with others stays."""
        places = SessionPlaces(app_name, user_id, session_id)
        for place, position in (await self._ended(places)).items():

            async def forget(_: str, place: str = place, position: int = position) -> object:
                return await self._store.forget(place, expect=position)

            try:
                await carried(forget, CALL_AGAIN)
            except Conflict:
                return  # it was created again, which removed the rest

    async def _ended(self, places: "SessionPlaces") -> dict[str, int]:
        """What is to be forgotten of the session, up to where. If it is deleted: what a broken deletion has left."""
        # Read first: without a session, whatever is there up to these positions belongs to a deleted one.
        positions = {place: await self._store.position(place) for place in places.own}
        if not _SummedState(await self._changes(places.state)).exists:
            return {place: at for place, at in positions.items() if await self._store.history(place, last=1)}
        # Both positions move, so nobody who read the session earlier can append to it, or to a new one of its name.
        ends = {place: [Message("state", [], metadata={"gone": True})] for place in places.own}
        receipts = await carried(lambda turn: self._store.append_many(ends, turn=turn), CALL_AGAIN)
        return {place: receipts[place].last for place in places.own}

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state that the user's sessions share, without the prefix `user:`."""
        return _SummedState(await self._changes(composite_id(_USER, app_name, user_id))).state

    async def append_event(self, session: Session, event: Event) -> Event:
        """Stores the event and the state it changes, all or nothing. The same event again stores nothing."""
        if event.partial:
            return event
        places = SessionPlaces(session.app_name, session.user_id, session.id)
        lock = self._locks.setdefault(places.events, asyncio.Lock())
        async with lock:  # branches of one run share the session object
            return await self._append(places, session, event)

    async def _append(self, places: "SessionPlaces", session: Session, event: Event) -> Event:
        born, position = await self._seen(places, session)
        message, delta = _message(event)
        scopes = _scopes(delta)
        turns = {places.events: [message], **places.shared(scopes)}
        if scopes[""]:
            turns[places.state] = [_change(scopes[""])]
        turn = composite_id(born, event.id, fingerprint([message]).hex())
        try:
            receipts = await carried(
                lambda _: self._store.append_many(turns, turn=turn, expect={places.events: position}),
                "append the same event again: it has an id, and is stored once",
            )
        except Conflict:
            if _SummedState(await self._changes(places.state)).exists:
                raise StaleSessionError(_STALE) from None
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        stored_at = receipts[places.events].last
        if stored_at <= position:
            return event  # the session has it already
        event = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        session._storage_update_marker = _marker(born, stored_at)
        for place in turns.keys() - {places.events}:
            if receipts[place].last % CHANGES_KEPT == 0:
                try:
                    await self._sum_up(place)
                except RecollectError as error:  # the event is stored, and an error would say that it is not
                    log.warning(
                        "the changes of a state were not summed up; the next ones will be, with these: %s",
                        error,
                    )
        return event

    async def _seen(self, places: "SessionPlaces", session: Session) -> tuple[str, int]:
        """The life and the position of the session that the caller has read."""
        if session._storage_update_marker is not None:
            born, _, position = session._storage_update_marker.rpartition("/")
            return born, int(position)
        # Made by hand, or read from a file: it is fresh if it ends with the last event.
        current = await self.get_session(
            app_name=session.app_name,
            user_id=session.user_id,
            session_id=session.id,
            config=GetSessionConfig(num_recent_events=1),
        )
        if current is None or current._storage_update_marker is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        if [event.id for event in session.events[-1:]] != [event.id for event in current.events]:
            raise StaleSessionError(_STALE)
        born, _, position = current._storage_update_marker.rpartition("/")
        return born, int(position)

    async def _sum_up(self, place: str) -> None:
        """Replaces the changes of a state by their sum, unless somebody is changing it."""
        position = await self._store.position(place)
        items = await self._store.history(place)
        folded = _SummedState(items)
        if folded.damaged or len(items) < CHANGES_KEPT // 2:
            return  # what cannot be read is left as it is

        async def write(turn: str) -> object:
            summed = _change(folded.state, created=folded.created or None)
            return await self._store.replace(place, [summed], turn=turn, expect=position)

        try:
            await carried(write, CALL_AGAIN)
        except Conflict:
            return


# ---- where everything is

_EVENTS, _STATE, _USER, _APP = "adk", "adk-state", "adk-user", "adk-app"


class SessionPlaces:
    """The sessions of the store that one session of ADK is in."""

    def __init__(self, app_name: str, user_id: str, session_id: str) -> None:
        self.session_id = session_id
        self.events = composite_id(_EVENTS, app_name, user_id, session_id)
        self.state = composite_id(_STATE, app_name, user_id, session_id)
        self.user = composite_id(_USER, app_name, user_id)
        self.app = composite_id(_APP, app_name)

    @property
    def own(self) -> tuple[str, str]:
        return self.events, self.state

    def shared(self, scopes: Mapping[str, dict[str, Any]]) -> dict[str, list[Message]]:
        """The changes of the state that is shared with other sessions."""
        places = ((self.user, State.USER_PREFIX), (self.app, State.APP_PREFIX))
        return {place: [_change(scopes[prefix])] for place, prefix in places if scopes[prefix]}


def _marker(born: str, position: int) -> str:
    return f"{born}/{position}"


# ---- state


def _scopes(delta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A change of state, split by the prefix of its keys, which is removed; temporary state is left out."""
    scopes: dict[str, dict[str, Any]] = {State.APP_PREFIX: {}, State.USER_PREFIX: {}, "": {}}
    try:
        # As in ADK's own JSON of the event, which has the same change.
        plain = to_jsonable_python(dict(delta), bytes_mode="base64")
    except ValueError as error:  # of what has no JSON, goes round in a circle, or is too deep
        raise Refused(f"state: what is kept is JSON, or can be made JSON: {error}") from None
    for key, value in plain.items():
        prefix = next((one for one in (State.APP_PREFIX, State.USER_PREFIX) if key.startswith(one)), "")
        if not key.startswith(State.TEMP_PREFIX):
            scopes[prefix][key.removeprefix(prefix)] = value
    return scopes


def _change(state: Mapping[str, Any], created: Mapping[str, Any] | None = None) -> Message:
    metadata: dict[str, Any] = {"set": dict(state)}
    if created is not None:
        metadata["created"] = dict(created)
    return Message("state", [], metadata=metadata)


class _SummedState:
    """The sum of the changes of one state."""

    def __init__(self, items: Sequence[Stored]) -> None:
        self.state: dict[str, Any] = {}
        self.created: dict[str, Any] = {}
        self.damaged = False
        for item in items:
            if isinstance(item.message, Damaged):
                self.damaged = True
                log.error("a change of state is left out: %s", damage_note(item, item.message))
                continue
            metadata: dict[str, Any] = item.message.metadata
            if "created" in metadata or "gone" in metadata:
                self.state, self.created = {}, metadata.get("created", {})
            self.state.update(metadata.get("set", {}))

    @property
    def exists(self) -> bool:
        return bool(self.created)

    @property
    def born(self) -> str:
        return str(self.created["born"])


def _session(folded: _SummedState, last: Sequence[Stored], app: _SummedState, user: _SummedState) -> Session:
    created = folded.created
    state = dict(folded.state)
    state.update({State.APP_PREFIX + key: value for key, value in app.state.items()})
    state.update({State.USER_PREFIX + key: value for key, value in user.state.items()})
    updated = created["time"]
    if last and not isinstance(last[0].message, Damaged):
        updated = last[0].message.timestamp
    return Session(
        id=created["id"],
        app_name=created["app_name"],
        user_id=created["user_id"],
        state=state,
        last_update_time=updated,
    )


# ---- events


def _message(event: Event) -> tuple[Message, dict[str, Any]]:
    """The event as it is stored, and the state that it changes. Temporary state is in neither."""
    delta = dict(event.actions.state_delta or {}) if event.actions else {}
    kept = {key: value for key, value in delta.items() if not key.startswith(State.TEMP_PREFIX)}
    stored = event
    if len(kept) != len(delta):
        stored = event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": kept})})
    try:
        native = stored.model_dump(mode="json", exclude_none=True, by_alias=False)
    except ValueError as error:  # of what has no JSON, goes round in a circle, or is too deep
        raise Refused(f"event: what is kept is JSON, or can be made JSON: {error}") from None
    role = "user" if event.author == "user" else "assistant"
    return Message(role, [native], event.timestamp, {"shape": _EVENTS}, event.id), kept


def _event(item: Stored) -> Event:
    if isinstance(item.message, Damaged):
        note = Content(role="user", parts=[Part(text=damage_note(item, item.message))])
        return Event(id=f"damaged-{item.sequence}", author="system", content=note)
    if item.message.metadata.get("shape") == _EVENTS:
        return Event.model_validate(item.message.content[0])
    role = "user" if item.message.role == "user" else "model"
    said = Content(role=role, parts=[Part(text=item.message.text)])
    return Event(
        id=item.message.id,
        author=item.message.role,
        content=said,
        timestamp=item.message.timestamp,
    )


def _is_before(item: Stored, moment: float) -> bool:
    return not isinstance(item.message, Damaged) and item.message.timestamp < moment
