"""The chat service's settings. They reach its worker processes as JSON in one environment variable."""

import ipaddress
import os
from pathlib import Path

import msgspec

from recollect.errors import Refused
from recollect.private import FILE_MODE
from recollect.recall.opening import check_index
from recollect.secret import MARK, check_address, scheme_of, scrub, shown
from recollect.stores.sqlite.file import parse_url

VARIABLE = "RECOLLECT_CHAT_SETTINGS"
TOKEN_VARIABLE = "RECOLLECT_CHAT_TOKEN"
TOKEN_LENGTH_MIN = 16


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    memory: str = "sqlite:///recollect-memory/memory.db"
    conversations: str | None = None
    """Where conversations are kept, if not beside the memories: any address for `open_store`."""
    index: str = "auto"
    """``auto`` (Chroma next to a SQLite file, pgvector in PostgreSQL), ``none``, or an address for `open_recall`."""
    durability: str = "fsynced"
    witness: str | None = None
    allow_ephemeral: bool = False
    host: str = "127.0.0.1"
    port: int = 8321
    token: str | None = None
    workers: int = 1
    file_mode: int | None = FILE_MODE
    """The mode of the memory's files and folders, if it is in files; None leaves it to the umask."""
    model: str | None = None
    """The name of a model at an OpenAI-compatible endpoint; the stand-in if None."""
    base_url: str | None = None
    request_bytes_max: int = 64 * 1024
    memories_per_reply: int = 5
    score_min: float = 0.15
    budget_tokens: int = 1_000
    history_messages: int = 20

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        values["token"] = self.token and MARK
        told = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return scrub(f"ChatSettings({told})", self.memory, self.store_url, self.index, self.base_url)

    @property
    def store_url(self) -> str:
        """Where conversations are kept."""
        return self.conversations or self.memory

    @property
    def folders(self) -> list[Path]:
        """Where what is kept in files lives."""
        addresses = dict.fromkeys((self.memory, self.store_url))
        return [parse_url(address)[0].parent for address in addresses if scheme_of(address) == "sqlite"]

    @property
    def index_url(self) -> str | None:
        if self.index == "none":
            return None
        if self.index != "auto":
            return self.index
        if scheme_of(self.memory) != "sqlite":
            return self.memory
        return f"chroma:///{parse_url(self.memory)[0].with_suffix('.index')}"

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def checked(settings: ChatSettings) -> ChatSettings:
    scheme = scheme_of(settings.memory)
    for address in (settings.memory, settings.store_url, settings.index, settings.base_url or ""):
        check_address(address)
    if scheme not in ("sqlite", "postgresql", "postgres"):
        raise Refused(
            "--memory: long-term memory needs sqlite:///file.db or postgresql://host/db, "
            f"not {scheme or shown(settings.memory)!r}; conversations may be elsewhere: --conversations"
        )
    if settings.index not in ("auto", "none"):
        check_index(settings.index)
    if not settings.loopback and not settings.token:
        raise Refused(
            f"--host {settings.host} can be reached from elsewhere: set {TOKEN_VARIABLE} to a secret of at least "
            f"{TOKEN_LENGTH_MIN} characters, or stay on 127.0.0.1"
        )
    if settings.token is not None and len(settings.token) < TOKEN_LENGTH_MIN:
        raise Refused(
            f"the token has {len(settings.token)} characters; at least {TOKEN_LENGTH_MIN} are needed"
        )
    if settings.workers < 1:
        raise Refused(f"--workers: at least 1, not {settings.workers}")
    return settings


def to_environment(settings: ChatSettings) -> None:
    os.environ[VARIABLE] = msgspec.json.encode(settings).decode()


def from_environment() -> ChatSettings:
    return msgspec.json.decode(os.environ.get(VARIABLE, "{}"), type=ChatSettings)
