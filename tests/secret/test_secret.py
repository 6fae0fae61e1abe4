"""An address with credentials prints them nowhere, and every spelling of them is found in what others say."""

import copy
import json
import pickle
import pprint
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recollect.chat.settings import ChatSettings
from recollect.errors import Refused
from recollect.opening import open_store
from recollect.secret import Scrubber, SecretUrl, check_address, from_json, scrub, secrets_of, shown
from recollect.store import Options
from recollect.stores.redis.address import parse_address
from recollect.verify.engines import Endpoint
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.running.scenario import Scenario
from tests.secret.canary import ADDRESSES, ENCODED, MARK, PLAIN

URL = f"postgresql://app:{ENCODED}@h1:5432,h2:5433/memory?sslpassword={PLAIN}"


@dataclass
class Holder:
    url: SecretUrl


def test_it_never_prints_itself() -> None:
    url = SecretUrl(URL)
    texts = [repr(url), str(url), f"{url}", f"{url:>200}", f"{url}", pprint.pformat([url])]
    texts += [repr(Holder(url)), repr(Options(read_url=url)), str(ValueError(url)), repr({url: url})]
    for text in texts:
        assert MARK not in text
        assert "h1:5432,h2:5433/memory" in text
    assert url.reveal() == URL
    assert copy.deepcopy(url) == copy.copy(url) == SecretUrl(url) == url
    for refused in (pickle.dumps, json.dumps, msgspec.json.encode, msgspec.to_builtins):
        with pytest.raises(TypeError):
            refused(url)


def test_what_holds_an_address_does_not_print_it() -> None:
    redis = f"redis://app:{ENCODED}@127.0.0.1:1/15"
    values = [
        open_store(URL, read_url=URL)._options,
        parse_address(redis),
        redis_address(redis),
        postgres_address(f"postgresql://app:{ENCODED}@127.0.0.1:1/memory"),
        Endpoint(redis, "redis", "Redis", "7", "custom", "url", socket_url=redis, replicas=(redis,)),
        ChatSettings(memory=URL, index=redis, base_url=f"http://{ENCODED}@host", token=PLAIN),
        Scenario(target="redis", engine="redis", policy="custom", fault="cut", url=SecretUrl(redis)),
    ]
    for value in values:
        assert MARK not in repr(value).lower(), type(value)
        assert MARK not in f"{value}".lower(), type(value)


@given(st.text(min_size=1))
@example("#")
@example("a b+c%20")
@example("'\"\\")
def test_every_spelling_of_a_password_is_scrubbed(password: str) -> None:
    password = f"{MARK}{password}".encode("utf-8", "replace").decode()
    encoded = quote(password, safe="")
    url = f"redis://app:{encoded}@host:6379/0"
    for spelled in (password, encoded, encoded.lower(), repr(password), json.dumps(password), url):
        assert MARK not in scrub(f"AUTH failed: {spelled}.", url)
    assert shown(url) == "redis://host:6379/0"
    assert SecretUrl(url).saved == "redis://***@host:6379/0"
    assert not SecretUrl(SecretUrl(url).saved).complete


def refusal_of(url: str) -> Refused | None:
    try:
        check_address(url)
    except Refused as refusal:
        return refusal
    return None


@given(st.text(alphabet="ab#/?@:[]%&= ,;\\'\"é\n", max_size=12), st.sampled_from(ADDRESSES))
def test_an_unescaped_password_is_neither_shown_nor_read_as_something_else(middle: str, like: str) -> None:
    url = f"redis://app:{MARK}1{middle}{MARK}2@127.0.0.1:1/15"
    for text in (shown(url), str(SecretUrl(url)), repr(SecretUrl(url)), scrub(f"bad {url!r}", url)):
        assert MARK not in text
    refusal = refusal_of(url)
    assert MARK not in str(refusal)
    if refusal is None:
        address = redis_address(url)
        assert MARK not in f"{address.host}{address.port}{address.database}{address}"
    assert MARK not in shown(like)
    assert MARK not in scrub(f"{like!r}", like)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:p@w@127.0.0.1/0?client_name=a%40b",
        "unix:///run/a@b.sock?db=3",
        "postgresql://app@[::1]:5432,h2/db?sslmode=require",
        "postgresql://app:p%23w@/chats?host=/run/pg&port=5433",
        "rediss+cluster://app:p%40w@a,b:7001,[::1]:7002/0?prefix=x",
        "sqlite:////home/a:b@c/memory.db",
        "chroma:///folder#1",
        "http://localhost:8000",
    ],
)
def test_good_addresses_are_not_refused(url: str) -> None:
    check_address(url)
    assert MARK not in shown(url)
    assert not any(secret in shown(url) for secret in secrets_of(url))


@pytest.mark.parametrize("damaged", [b"3", b"null", b"[]", b'{"url": "redis://h"}'])
def test_a_damaged_file_is_told_as_one(damaged: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="text"):
        msgspec.json.decode(damaged, type=SecretUrl, dec_hook=from_json)


def test_what_is_no_secret_stays() -> None:
    plain = "postgresql://app@host/db?sslmode=require"
    assert secrets_of(plain) == secrets_of("sqlite:////home/a:b@c/memory.db") == ()
    assert SecretUrl(plain).saved == plain
    assert not Scrubber(["kill-engine@bgsave", "package.module:factory", "redis@7", None])
    assert shown("no-such-file.db") == "no-such-file.db"


def test_replay_asks_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from recollect.commands import replay

    whole = f"redis://app:{ENCODED}@127.0.0.1:6379/15"
    monkeypatch.delenv("RECOLLECT_REDIS_URL", raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda text, **options: print(text) or whole)
    saved = Scenario(
        target="redis", engine="redis", policy="custom", fault="cut", url=SecretUrl(SecretUrl(whole).saved)
    )
    filled = replay._with_credentials(saved, Path("runs/x"))
    assert filled.url is not None
    assert filled.url.reveal() == whole
    told = capsys.readouterr()
    assert "its credentials are not saved" in told.out
    assert MARK not in told.out + told.err
