"""A store is what its methods take, and not what they are called."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from recollect.verify.target import interface_choice
from recollect.verify.target.driving import Driven, play
from recollect.verify.target.driving.vectors import Vectors as DrivenVectors
from recollect.verify.target.interface_choice import interface_of
from recollect.verify.target.interfaces import LangChainMessages, Mappings, Texts, parameters
from recollect.verify.target.shape import SHAPES, BadTarget, shape_of

if TYPE_CHECKING:
    from tests.verify.stores import ChatMessage


class WholeList:
    def save(self, session: str, messages: list[Any]) -> None: ...

    def load(self, session: str) -> list[Any]:
        return []


class Conversation:
    def __init__(self, conversation_id: str, messages: list[Any]) -> None: ...


class ByConversation:
    """As Pydantic AI's stores have it: the names of a whole list, and another meaning."""

    async def save(self, conversation: Conversation | int, *, scope: str | None = None) -> None: ...

    async def load(self, conversation_id: str, *, limit: int | None = None) -> Conversation | None:
        return None


class Keyed:
    def add_messages(self, key: str, messages: list[Any], status: str = "active") -> None: ...

    def get_messages(self, key: str, limit: int | None = None) -> list[Any]:
        return []


class OneByOne:
    def add_message(self, key: str, message: Any, idx: int | None = None) -> None: ...

    def get_messages(self, key: str) -> list[Any]:
        return []


class AppendsOne:
    def append(self, session: str, message: Any) -> None: ...

    def history(self, session: str) -> list[Any]:
        return []


class AppendsOneReadsAll(AppendsOne):
    def history(self) -> list[Any]:  # type: ignore[override]
        return []


class AppendsAll(AppendsOne):
    def append(self, session: str, messages: Any) -> None: ...


class Saved:
    async def save_messages(self, session_id: str | None, messages: list[Any], **options: Any) -> None: ...

    async def get_messages(self, session_id: str | None, *, state: Any = None) -> list[Any]:
        return []


class OfSession:
    def add_messages(self, messages: list[Any]) -> None: ...

    @property
    def messages(self) -> list[Any]:
        return []


class Config(TypedDict):
    configurable: dict[str, str]


class Saver:
    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Any: ...

    def get_tuple(self, config: Config) -> Any: ...

    def get(self, config: Config) -> Any: ...


class Apart:
    def append(self, session: str, role: str, content: str) -> None: ...

    def history(self, session: str) -> list[Any]:
        return []


class ApartByKeyword:
    async def log(self, role: str, message: str, at: float = 0.0, *, conversation: str) -> None: ...

    async def get_chat_history(self, conversation: str) -> list[Any]:
        return []


class ApartWithDefaults:
    """Could be called as add_message(session, message), and would lose every role."""

    def add_message(self, user_id: str, text: str, role: str = "user") -> None: ...

    def recent(self, user_id: str, n: int) -> list[Any]:
        return []


class ApartOfSession:
    def add_message(self, role: str, content: str, session_id: str | None = None) -> None: ...

    @property
    def messages(self) -> list[Any]:
        return []


class AlsoOfAll(ApartOfSession):
    def load(self, session_id: str) -> list[Any]:
        return []


class ApartBesideOthers(Apart):
    """Two reads and two writes have the names: those count that take the arguments."""

    def append(self, session: str, role: str, content: str, number: int) -> None: ...  # type: ignore[override]

    def save_message(self, session: str, role: str, content: str) -> None: ...

    def history(self) -> list[Any]:  # type: ignore[override]
        return []

    def load(self, session: str) -> list[Any]:
        return []


class Diary:
    def add(self, user: str, entry: str) -> None: ...

    def get(self, user: str) -> list[Any]:
        return []


class DiaryOfSession:
    def add_message(self, message: dict[str, Any]) -> None: ...

    def get_history(self, limit: int = 10) -> list[Any]:
        return []


class OneWithOtherReads(OneByOne):
    def __init__(self) -> None:
        self.get_messages = None  # type: ignore[assignment]

    def get_history(self, key: str, count: int) -> list[Any]:
        return []


class Queue:
    """What everything that holds things has."""

    def put(self, item: Any) -> None: ...

    def get_tuple(self, config: Any) -> Any: ...


class Service:
    async def append_event(self, session: Any, event: dict[str, Any]) -> Any: ...

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: Any = None
    ) -> Any: ...


class Thread:
    def create_message(self, thread_id: str, message: Any) -> None: ...

    def list_messages(self, thread_id: str) -> list[Any]:
        return []


class Repository:
    def create_message(self, session_id: str, agent_id: str, session_message: Any, **more: Any) -> None: ...

    def list_messages(self, session_id: str, agent_id: str, limit: int | None = None) -> list[Any]:
        return []


class Vectors:
    def add_texts(self, texts: list[str], metadatas: Any = None, **more: Any) -> list[str]:
        return []

    def similarity_search(self, query: str, k: int = 4, **more: Any) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("kind", "per_session", "name"),
    [
        (WholeList, False, "save/load"),
        (ByConversation, False, "save/load of a conversation"),
        (Keyed, False, "add_messages/get_messages"),
        (OneByOne, False, "add_message/get_messages"),
        (Saved, False, "save_messages/get_messages"),
        (AppendsOne, False, "append/history of one message"),
        (AppendsAll, False, "append/history"),
        (Diary, False, "append/history of one message"),
        (DiaryOfSession, True, "append(message)"),
        (OneWithOtherReads, False, "add_message/get_messages"),
        (OfSession, True, "add_messages/messages"),
        (Apart, False, "append(session, role, content)"),
        (ApartByKeyword, False, "append(session, role, content)"),
        (ApartWithDefaults, False, "append(session, role, content)"),
        (ApartOfSession, True, "append(role, content)"),
        (AlsoOfAll, False, "append(session, role, content)"),
        (ApartBesideOthers, False, "append(session, role, content)"),
        (Saver, False, "put/get_tuple"),
        (Service, False, "append_event/get_session"),
        (Thread, False, "create_message/list_messages"),
        (Repository, False, "create_message/list_messages of an agent"),
        (Vectors, False, "add_texts/similarity_search"),
        (Vectors, True, "add_texts/similarity_search of a session"),
    ],
)
def test_the_arguments_decide(kind: type, per_session: bool, name: str) -> None:
    assert shape_of(kind(), "shop:memory", per_session).name == name


class RoleAndContent:
    def append_message(self, role: str, content: str) -> None: ...

    def get_messages(self, session: str) -> list[Any]:
        return []


class TwoKeys:
    def add_message(self, user_id: str, chat_id: str, role: str, content: str) -> None: ...

    def get_messages(self, user_id: str, chat_id: str) -> list[Any]:
        return []


class NumberedSessions:
    def add_message(self, session_id: int, role: str, content: str) -> None: ...

    def get_messages(self, session_id: str) -> list[Any]:
        return []


class ContentIsAMapping:
    def add_message(self, session_id: str, role: str, content: dict[str, Any]) -> None: ...

    def get_messages(self, session_id: str) -> list[Any]:
        return []


class OneSaved:
    """Would be given the whole list each time."""

    def save(self, session: str, message: dict[str, Any]) -> None: ...

    def load(self, session: str) -> list[Any]:
        return []


class Unread:
    def add_message(self, session: str, role: str, content: str) -> None: ...

    def dump(self, session: str) -> list[Any]:
        return []


@contextlib.contextmanager
def opened() -> Iterator[Unread]:
    yield Unread()


class MessagesFirst:
    def save_messages(self, messages: list[Any], scope: str) -> None: ...

    def get_messages(self, scope: str) -> list[Any]:
        return []


class ASessionObject:
    def append(self, session: Conversation, messages: list[Any]) -> None: ...

    def history(self, session: Conversation) -> list[Any]:
        return []


class Files:
    """A store of anything, by path."""

    def save(self, path: str) -> None: ...

    def load(self, path: str) -> Any: ...


class Unannotated:
    def save(self, conversation):  # type: ignore[no-untyped-def]
        ...

    def load(self, conversation_id: str) -> Any: ...


class Lazy:
    """Has nothing to do with memory, and a property that works later only."""

    @property
    def connection(self) -> Any:
        raise RuntimeError("not connected")

    def ask(self) -> None: ...


class NoMethod:
    append = 5

    def history(self, session: str) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("kind", "per_session", "says"),
    [
        (
            Files,
            False,
            "save(path: 'str') -> 'None' cannot be called as save(session, messages)",
        ),
        (Unannotated, False, "save(conversation) cannot be called as save(session, messages)"),
        (Lazy, False, "It has ask. Known of factory(endpoint): append/history, "),
        (NoMethod, False, "append, which is no method, cannot be called as append(session, messages)"),
        (AppendsOneReadsAll, False, "shape. history() -> 'list[Any]' cannot be called as history(session). "),
        (RoleAndContent, False, "cannot be called as append_message(session, role, content). Write append("),
        (TwoKeys, False, "cannot be called as add_message(session, role, content); get_messages"),
        (NumberedSessions, False, "add_message(session_id: 'int', role: 'str', content: 'str')"),
        (
            OneSaved,
            False,
            "message: 'dict[str, Any]') -> 'None' cannot be called as save(session, messages). Write",
        ),
        (Unread, False, "is known, but nothing that reads, such as history(session) or get_messages"),
        (opened, False, "has to return the store itself"),
        (ContentIsAMapping, False, "add_message(session_id: 'str', role: 'str', content: 'dict[str, Any]')"),
        (Queue, False, r"put\(item: 'Any'\)"),
        (RoleAndContent, False, "append_message(role"),
        (MessagesFirst, False, "save_messages(messages"),
        (ASessionObject, False, "append(session: 'Conversation'"),
        (
            OfSession,
            False,
            "factory(endpoint), and add_messages/messages is known of factory(endpoint, session)",
        ),
        (Saver, True, "factory(endpoint, session), and put/get_tuple is known of factory(endpoint)"),
    ],
)
def test_names_alone_are_no_shape(kind: type, per_session: bool, says: str) -> None:
    with pytest.raises(BadTarget) as refused:
        shape_of(kind(), "shop:memory", per_session)
    assert says.replace("\\", "") in str(refused.value)


def annotated_for_a_type_checker(session: str, messages: list[ChatMessage]) -> None: ...


def test_an_annotation_that_cannot_be_resolved_hides_no_argument() -> None:
    assert list(parameters(annotated_for_a_type_checker)) == ["session", "messages"]


class Note:
    def __init__(self, content: str) -> None: ...


class FrameworksHistory:
    def save_messages(self, session_id: str | None, messages: Sequence[Note], *, state: int = 0) -> None: ...


class WithoutTypes(FrameworksHistory):
    def save_messages(self, session_id, messages, *, state=0):  # type: ignore[no-untyped-def]
        ...


class OtherNames(FrameworksHistory):
    def save_messages(self, name, new, **more):  # type: ignore[no-untyped-def, override]
        ...


class TypesOfItsOwn(WithoutTypes):
    def save_messages(self, session_id, messages: list[str], *, state=0):  # type: ignore[no-untyped-def, override]
        ...


@pytest.mark.parametrize(
    ("kind", "annotations"),
    [
        (WithoutTypes, [str | None, Sequence[Note], int]),
        (OtherNames, [str | None, Sequence[Note], inspect.Parameter.empty]),
        (TypesOfItsOwn, [str | None, list[str], int]),
    ],
)
def test_a_method_without_annotations_has_those_of_the_one_it_overrides(
    kind: type[FrameworksHistory], annotations: list[Any]
) -> None:
    taken = parameters(kind().save_messages)
    assert [one.annotation for one in taken.values()] == annotations


def _given(annotation: Any) -> dict[str, inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {"messages": inspect.Parameter("messages", kind, annotation=annotation)}


def test_a_history_of_one_session_gets_langchains_messages_unless_it_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_langchain = type("BaseMessage", (), {"__module__": "langchain_core.messages.base"})
    shape, nothing = "add_messages/messages", inspect.Parameter.empty
    for installed, annotation, expected in (
        (True, nothing, LangChainMessages),
        (False, nothing, Mappings),
        (True, list[dict[str, Any]], Mappings),
        (True, list[str], Texts),
        (False, Sequence[of_langchain], LangChainMessages),  # type: ignore[valid-type]
    ):
        monkeypatch.setattr(interface_choice, "find_spec", lambda _, found=installed: found or None)
        assert type(interface_of(shape, _given(annotation))) is expected
    keyed = interface_of("add_messages/get_messages", _given(list[of_langchain]))  # type: ignore[valid-type]
    assert type(keyed) is LangChainMessages


def test_every_shape_has_a_name_of_its_own() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)


# ---- courses: one text for synchronous and asynchronous stores


def course(log: list[str], answer: Any) -> Generator[Any, Any, list[str]]:
    try:
        log.append((yield answer("first")))
        log.append((yield answer("second")))
    except ValueError as error:
        log.append(f"caught {error}")
    return log


def told(word: str) -> str:
    return word


async def told_later(word: str) -> str:
    await asyncio.sleep(0)
    return word


def refused(word: str) -> str:
    raise ValueError(word)


async def refused_later(word: str) -> str:
    await asyncio.sleep(0)
    raise ValueError(word)


@pytest.mark.parametrize(("answer", "expected"), [(told, ["first", "second"]), (refused, ["caught first"])])
def test_a_course_of_a_synchronous_store_ends_at_once(answer: Any, expected: list[str]) -> None:
    assert play(course([], answer)) == expected


@pytest.mark.parametrize(
    ("answer", "expected"), [(told_later, ["first", "second"]), (refused_later, ["caught first"])]
)
async def test_a_course_of_an_asynchronous_store_is_awaited(answer: Any, expected: list[str]) -> None:
    played = play(course([], answer))
    assert not isinstance(played, list)
    assert await played == expected


def test_what_is_driven_stays_synchronous_or_asynchronous() -> None:
    """Several callers of a store are threads or tasks, whichever it was written for."""
    made: list[Driven] = []
    for store in (Saver(), Service(), Repository(), ByConversation(), Vectors()):
        drive = shape_of(store, "shop:memory", False).drive
        assert drive is not None
        made.append(drive(store))
    assert [one.is_async for one in made] == [False, True, False, True, False]


class Inherited(Vectors):
    """As every vector store of LangChain has it, unless it brings its own."""

    def get_by_ids(self, ids: list[str]) -> list[Any]:
        raise NotImplementedError

    get_by_ids.__module__ = "langchain_core.vectorstores.base"


class Own(Vectors):
    def get_by_ids(self, ids: list[str]) -> list[Any]:
        return []


@pytest.mark.parametrize(("kind", "searched"), [(Vectors, False), (Inherited, False), (Own, True)])
def test_a_lookup_that_only_raises_is_not_called(kind: type, searched: bool) -> None:
    assert hasattr(DrivenVectors(kind()), "search") is searched


@pytest.mark.parametrize(("kind", "rewrites"), [(Saver, True), (Service, False), (Repository, False)])
def test_which_writes_put_back_what_they_have_read(kind: type, rewrites: bool) -> None:
    shape = shape_of(kind(), "x", False)
    assert getattr(shape.drive, "rewrites", False) is rewrites
