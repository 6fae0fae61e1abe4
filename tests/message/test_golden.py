"""Records that lie in people's databases: every version, and every shape of other tools."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recollect import Message
from recollect.message import SCHEMA, UPCASTERS, decode, encode
from tests.message import older_reader

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*.json"))


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(request.param.read_text())
    return content


def test_the_current_release_reads_it(golden: dict[str, Any]) -> None:
    message = decode(golden["record"].encode())
    assert isinstance(message, Message)
    assert msgspec.structs.asdict(message) == golden["message"]


def test_the_current_release_writes_it_back_without_losing_anything(golden: dict[str, Any]) -> None:
    message = decode(golden["record"].encode())
    assert isinstance(message, Message)
    written = encode(message)
    assert json.loads(written) == json.loads(golden.get("written", golden["record"]))
    assert decode(written) == message


def test_an_older_reader_understands_what_the_current_release_writes(golden: dict[str, Any]) -> None:
    message = decode(golden["record"].encode())
    assert isinstance(message, Message)
    seen = older_reader.read(encode(message))
    assert (seen["role"], seen["content"], seen["id"]) == (message.role, message.content, message.id)
    assert decode(older_reader.write_back(seen)) == message


def test_nothing_that_a_newer_release_wrote_is_lost() -> None:
    raw = (Path(__file__).parent.parent / "golden" / "v3-with-tabs-from-a-newer-release.json").read_text()
    record = json.loads(raw)["record"]
    message = decode(record.encode())
    assert isinstance(message, Message)
    assert message.schema == SCHEMA + 1
    assert message.extra == {"mood": {"grumpy": 0.7}, "reply_to": "0191"}
    assert encode(message).decode() == record


def test_the_current_version_is_written_byte_by_byte_as_it_was() -> None:
    for path in GOLDEN:
        if path.stem.startswith("v2-with-tabs-"):
            record = json.loads(path.read_text())["record"].encode()
            message = decode(record)
            assert isinstance(message, Message)
            assert encode(message) == record, path.stem


def test_a_release_without_checksums_may_change_a_message_and_is_believed() -> None:
    seen = older_reader.read(encode(Message("user", "I am Xiao Li")))
    seen["content"] = "I am Lao Li"
    changed = decode(older_reader.write_back(seen))
    assert isinstance(changed, Message)
    assert changed.content == "I am Lao Li"


def test_the_chain_of_upcasters_has_no_missing_link() -> None:
    assert sorted(UPCASTERS) == list(range(SCHEMA))


def test_every_version_has_a_golden_file() -> None:
    records = [json.loads(json.loads(path.read_text())["record"]) for path in GOLDEN]
    versions = {record.get("v", 0) for record in records if isinstance(record, dict)}
    assert versions >= set(range(SCHEMA + 1))
