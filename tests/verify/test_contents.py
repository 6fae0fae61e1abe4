"""Messages of every kind come back whole through every interface, and whatever is done to them is noticed."""

import copy
import enum
import inspect
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict

import pytest

from recollect.message import Message, decode, encode
from recollect.verify.running.workloads import AppendTurn, Planner, SaveBack
from recollect.verify.running.workloads.contents import IDS, SAID_NOTHING, SAID_TWICE, contents, left_out
from recollect.verify.target import pipe
from recollect.verify.target.contents import AGAIN, CONTENT, KINDS, REAL_IDS, TEXTS, real_id, text_of
from recollect.verify.target.interface_choice import FORMS, interface_of, is_open, takes_one_message
from recollect.verify.target.interfaces import (
    AgentItems,
    Interface,
    LangChainMessages,
    Mappings,
    OurMessages,
    OwnClass,
    Texts,
    parameters,
)
from recollect.verify.target.marked_text import numbers_in
from recollect.verify.target.pipe import Said
from recollect.verify.target.returned import elements, recognised
from recollect.verify.target.role_and_content import arguments_of


@dataclass
class Entry:
    role: str
    content: Any
    name: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    tool_calls: list[Any] = field(default_factory=list)
    tool_call_id: str = ""


@dataclass
class Line:
    role: Literal["user", "assistant"]
    content: str


class Speaker(enum.Enum):
    USER = "user"


@dataclass
class Uttered:
    role: Speaker
    text: str


class Turn(TypedDict):
    role: str
    content: str
    metadata: dict[str, Any]


WHOLE: list[Interface] = [Mappings(), OwnClass(Entry), OurMessages(), AgentItems()]
"""Those with a place for everything."""


def kept(message: Any) -> Any:
    """As a store gives it back that keeps everything."""
    if hasattr(message, "schema"):
        return decode(encode(message))
    if isinstance(message, Entry):
        return Entry(**json.loads(json.dumps(asdict(message))))
    return json.loads(json.dumps(message))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interface", WHOLE, ids=lambda interface: type(interface).__name__)
def test_what_comes_back_whole_is_intact(interface: Interface, kind: str) -> None:
    assert kind in interface.kinds
    found = recognised(kept(interface.make(Said(17, "", kind))), interface)
    assert (found.number, found.intact, found.excerpt) == (17, True, "")


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_through_langchain_s_classes_is_intact(kind: str) -> None:
    messages = pytest.importorskip("langchain_core.messages")
    interface = LangChainMessages()
    written = interface.make(Said(17, "", kind))
    read = messages.messages_from_dict(json.loads(json.dumps([messages.message_to_dict(written)])))[0]
    assert recognised(read, interface)[:2] == (17, True)
    other = interface.make(Said(17, "", "observer" if kind != "observer" else "developer"))
    other.content = read.content
    found = recognised(other, interface)
    assert (found.number, found.intact) == (17, False), "another class"


def changed(message: Any, **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(message), **changes}


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("developer", {"role": "system"}, "role 'developer' came back as 'system'"),
        ("observer", {"role": "user"}, "role 'observer' came back as 'user'"),
        ("tool", {"tool_call_id": "call_18"}, "tool_call_id: 'call_17' came back as 'call_18'"),
        ("call", {"tool_calls": []}, "tool_calls: "),
        ("call", {"tool_calls": None}, "came back as None"),
        ("blocks", {"content": text_of(17, "blocks")}, "content: "),
        ("named", {"metadata": {}}, "metadata: "),
        ("named", {"name": "xiao li"}, "name: 'Xiao Li' came back as 'xiao li'"),
        ("spaced", {"content": text_of(17, "spaced").strip()}, "content: "),
        ("decomposed", {"content": text_of(17, "decomposed").replace("e\u0301", "é")}, "content: "),
        ("surrogate", {"content": text_of(17, "surrogate").replace("\ud83d", "?")}, "content: "),
    ],
)
def test_what_was_rewritten_is_noticed_and_said(kind: str, change: dict[str, Any], says: str) -> None:
    interface = Mappings()
    found = recognised(changed(interface.make(Said(17, "", kind)), **change), interface)
    assert (found.number, found.intact, found.unkept) == (17, False, False)
    assert found.excerpt.startswith(KINDS[kind].called)
    assert says in found.excerpt
    pipe.encode(pipe.Elements([-1], [found]))  # whatever it is, it can be told


def test_a_field_that_is_one_of_several_may_not_be_left_out() -> None:
    interface = Mappings()
    message = interface.make(Said(17, "", "named"))
    del message["metadata"]
    found = recognised(message, interface)
    assert (found.intact, found.unkept) == (False, False)
    assert "without its metadata" in found.excerpt


def test_role_and_content_alone_are_told_apart_from_damage() -> None:
    interface = Mappings()
    message = interface.make(Said(17, "", "call"))
    found = recognised({"role": message["role"], "content": message["content"]}, interface)
    assert (found.intact, found.unkept) == (False, True)
    named = interface_of("append_message/get_history", parameters(_takes_entry))
    assert isinstance(named, OwnClass)
    found = recognised(Line("assistant", message["content"]), named)
    assert (found.intact, found.unkept) == (False, False), "its own class names the field"


def test_more_than_was_written_is_no_damage() -> None:
    interface = Mappings()
    message = interface.make(Said(17, "", "named"))
    message["metadata"]["stored_at"] = 1
    assert recognised(changed(message, id="x"), interface).intact


def test_a_number_that_nobody_wrote_is_nobody_s() -> None:
    assert recognised("#17.9f3a21c0~nonsense text").number is None
    assert recognised({"role": "user", "content": ""}).number is None


def _takes_text(session: str, message: str) -> None: ...
def _takes_anything(session: str, message: dict[str, Any]) -> None: ...
def _takes_entry(session: str, message: Entry) -> None: ...
def _takes_line(session: str, message: Line) -> None: ...
def _takes_uttered(session: str, message: Uttered) -> None: ...
def _takes_turn(session: str, message: Turn) -> None: ...
def _takes_turns(session: str, messages: list[Turn]) -> None: ...
def _takes_texts(session: str, messages: list[str]) -> None: ...


@pytest.mark.parametrize(
    ("write", "kinds"),
    [
        (_takes_text, TEXTS),
        (_takes_texts, TEXTS),
        (_takes_anything, set(KINDS)),
        (_takes_entry, set(KINDS)),
        (_takes_line, TEXTS),
        (_takes_uttered, TEXTS),
        (_takes_turn, set(KINDS) - {"call", "blocks"}),
        (_takes_turns, set(KINDS) - {"call", "blocks"}),
    ],
)
def test_only_what_an_interface_has_a_place_for_is_said(write: Any, kinds: set[str]) -> None:
    interface = interface_of("append_message/get_history", inspect.signature(write, eval_str=True).parameters)
    assert interface.kinds == kinds
    for kind in kinds:
        assert recognised(interface.make(Said(3, "", kind)), interface)[:2] == (3, True)


def _says(session: str, role: str, content: str) -> None: ...
def _says_by_enum(session: str, role: Speaker, content: str) -> None: ...
def _says_with_name(session: str, role: str, content: str, name: str = "", metadata: str = "") -> None: ...
def _says_blocks(session: str, role: str, content: str | list[Any]) -> None: ...
def _says_anything(session, role, content, metadata=None, tool_calls=()): ...  # type: ignore[no-untyped-def]


ROLE_KINDS = {"system", "tool", "developer", "observer"}


@pytest.mark.parametrize(
    ("write", "kinds", "fields"),
    [
        (_says, TEXTS | ROLE_KINDS, set()),
        (_says_by_enum, TEXTS, set()),
        (_says_with_name, TEXTS | ROLE_KINDS | {"named"}, {"name"}),
        (_says_blocks, TEXTS | ROLE_KINDS | {"blocks"}, set()),
        (_says_anything, TEXTS | ROLE_KINDS | {"named", "call"}, {"metadata", "tool_calls"}),
    ],
)
def test_role_and_content_as_arguments_have_a_place_for_what_has_a_parameter(
    write: Any, kinds: set[str], fields: set[str]
) -> None:
    taken = arguments_of(write, keyed=True)
    assert taken is not None
    assert taken.interface.kinds == kinds
    assert {one.name for one in taken.fields} == fields
    for kind in kinds:
        given = taken.given("s", taken.interface.make(Said(3, "", kind)))
        inspect.signature(write).bind(**given)
        assert given["session"] == "s"
        for read in (given, {name: given[name] for name in ("role", "content")}):
            found = recognised(read, taken.interface)
            assert found.intact or found.unkept, "a read may leave fields out"
        other = recognised({**given, "role": "nobody"}, taken.interface)
        assert (other.intact, other.unkept) == (False, False)


def test_a_class_gets_a_timestamp_of_its_type_if_it_must_have_one() -> None:
    @dataclass
    class Stamped:
        content: str
        timestamp: datetime

    @dataclass
    class StampsItself:
        content: str
        timestamp: datetime = datetime.max  # noqa: DTZ901

    # As a module without postponed annotations has it.
    Stamped.__init__.__annotations__["timestamp"] = datetime
    assert isinstance(OwnClass(Stamped).make(Said(3, "hello")).timestamp, datetime)
    assert OwnClass(StampsItself).make(Said(3, "hello")).timestamp == datetime.max  # noqa: DTZ901


def test_a_field_that_comes_back_as_the_json_of_its_column_is_kept() -> None:
    taken = arguments_of(_says_anything, keyed=True)
    assert taken is not None
    message = taken.interface.make(Said(3, "", "named"))
    row = {**message, "metadata": json.dumps(message["metadata"])}
    assert recognised(row, taken.interface).intact
    for other in ("{}", "not JSON", json.dumps({**message["metadata"], "score": 1})):
        assert recognised({**row, "metadata": other}, taken.interface)[:2] == (3, False)
    assert not recognised(row, Mappings()).intact, "what is given back as another type is changed"


def _appends_dicts(session: str, messages: list[dict[str, Any]]) -> None: ...
def _appends_plain_dicts(session: str, messages: list[dict]) -> None: ...  # type: ignore[type-arg]
def _appends_turns(session: str, messages: Sequence[Turn]) -> None: ...
def _appends_ours(session: str, messages: Sequence[Message]) -> None: ...
def _appends_either(session: str, messages: Sequence[Message | dict[str, Any]]) -> None: ...
def _appends_texts(session: str, messages: list[str]) -> None: ...
def _appends_entries(session: str, messages: list[Entry]) -> None: ...
def _appends_anything(session, messages): ...  # type: ignore[no-untyped-def]
def _appends_a_list(session: str, messages: list) -> None: ...  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (_appends_dicts, Mappings),
        (_appends_plain_dicts, Mappings),
        (_appends_turns, Mappings),
        (_appends_ours, OurMessages),
        (_appends_either, OurMessages),
        (_appends_texts, Texts),
        (_appends_entries, OwnClass),
    ],
)
def test_append_with_history_takes_what_it_says(write: Any, kind: type) -> None:
    assert isinstance(interface_of("append/history", parameters(write), "text"), kind)
    assert not is_open("append/history", parameters(write))


def _appends_one(session, message): ...  # type: ignore[no-untyped-def]
def _appends_one_dict(session: str, messages: dict[str, Any]) -> None: ...
def _appends_one_text(session: str, new: str | None) -> None: ...
def _appends_a_list_of(session: str, message: list[Any] | None) -> None: ...
def _appends_each(session: str, *message: Any) -> None: ...


@pytest.mark.parametrize(
    ("write", "one"),
    [
        (_appends_one, True),
        (_appends_one_dict, True),
        (_appends_one_text, True),
        (_takes_entry, True),
        (_takes_turn, True),
        (_appends_anything, False),
        (_appends_a_list, False),
        (_appends_ours, False),
        (_appends_a_list_of, False),
        (_appends_each, False),
    ],
)
def test_whether_it_takes_one_message_is_said_by_the_type_and_else_by_the_name(write: Any, one: bool) -> None:
    assert takes_one_message(write) is one


@pytest.mark.parametrize("write", [_appends_anything, _appends_a_list])
def test_if_it_does_not_say_it_takes_the_form_that_was_tried(write: Any) -> None:
    for form, kind in FORMS.items():
        assert isinstance(interface_of("append/history", parameters(write), form), kind)
    assert isinstance(interface_of("append/history", parameters(write)), OurMessages), "as long as none was"
    assert is_open("append/history", parameters(write))
    assert not is_open("append_message/get_history", parameters(write))


def test_an_empty_text_and_one_said_twice_are_written_as_they_are() -> None:
    for interface in (Texts(), *WHOLE):
        read = elements(
            [interface.make(Said(3, "", AGAIN)), interface.make(Said(4, "yes", AGAIN))], None, interface
        )
        assert [item.excerpt for item in read.odd] == ["", "yes"]


def test_an_engine_s_bytes_tell_the_number_of_every_kind() -> None:
    for interface in WHOLE:
        for kind in KINDS:
            message = interface.make(Said(17, "", kind))
            raw = (
                encode(message)
                if hasattr(message, "schema")
                else json.dumps(asdict(message) if isinstance(message, Entry) else message).encode()
            )
            assert set(numbers_in(raw)) == {17}, (interface, kind)


def test_ids_are_all_different_and_can_be_told() -> None:
    assert len({real_id(session) for session in IDS}) == len(IDS)
    for session in (*IDS, SAID_NOTHING):
        pipe.encode(pipe.Read(session))
    assert all(label.isprintable() for label in REAL_IDS)


def test_what_was_left_out_is_said() -> None:
    everything = {f"{CONTENT}{kind}" for kind in KINDS}
    assert left_out(everything, dict.fromkeys(KINDS, True)) is None
    told = left_out(everything - {f"{CONTENT}call"}, {**dict.fromkeys(KINDS, True), "blocks": False})
    assert told == (
        "not tried, because its interface has no place for it: a tool call; "
        "not accepted, and so not judged: blocks with an image"
    )
    late = left_out(everything, dict.fromkeys(set(KINDS) - {"named"}, True))
    assert late == "not tried, because there was no time: a name and metadata"


@pytest.mark.parametrize("abilities", [(), ("whole-list",)])
def test_one_writer_says_everything_and_something_in_every_session_in_time(
    abilities: tuple[str, ...],
) -> None:
    able = frozenset({*abilities, *(f"{CONTENT}{kind}" for kind in KINDS)})
    plan = contents.plan(Planner(0, random.Random(1), contents.sessions, able))
    written: list[AppendTurn | SaveBack] = []
    intent = next(plan)
    while len(written) < contents.enough:
        if isinstance(intent, AppendTurn | SaveBack):
            written.append(intent)
        intent = plan.send("ok")
    assert {turn.session for turn in written} == set(contents.sessions)
    assert {body.kind for turn in written for body in turn.bodies} == {*KINDS, AGAIN}
    assert {turn.session for turn in written[: len(KINDS)] if turn.bodies[0].kind in KINDS} == {"user"}


def test_every_session_has_one_writer_but_the_one_in_which_all_say_it_twice() -> None:
    able = frozenset(f"{CONTENT}{kind}" for kind in KINDS)
    writers: dict[str, set[int]] = {}
    texts: dict[str, set[int]] = {}
    for number in range(3):
        plan = contents.plan(Planner(number, random.Random(1), contents.sessions, able, writers=3))
        intent = next(plan)
        for _ in range(200):
            if isinstance(intent, AppendTurn):
                writers.setdefault(intent.session, set()).add(number)
                for body in intent.bodies:
                    if not body.marked:
                        texts.setdefault(body.text, set()).add(number)
            intent = plan.send("ok")
    assert writers.keys() == set(contents.sessions)
    assert {session for session, found in writers.items() if len(found) > 1} == {SAID_TWICE}
    assert all(len(found) == 1 for found in texts.values()), "equal texts are told apart by their order alone"


def test_what_got_no_answer_is_the_last_of_the_equal_texts() -> None:
    """It may be there or not, and equal texts are told apart by their order alone."""
    able = frozenset(f"{CONTENT}{kind}" for kind in KINDS)
    plan = contents.plan(Planner(1, random.Random(1), contents.sessions, able, writers=3))
    said: list[bool] = []
    intent = next(plan)
    for _ in range(200):
        unmarked = isinstance(intent, AppendTurn) and not intent.bodies[0].marked
        said += [unmarked] if unmarked else []
        intent = plan.send("unknown" if unmarked and len(said) == 3 else "ok")
    assert len(said) == 3
