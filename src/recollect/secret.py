"""Addresses with credentials: a type that never prints them, and scrubbing for text that may quote them.

A `SecretUrl` shows scheme, host and path, whatever prints it: `repr`, `str`, an f-string, a traceback, a report. Only
`reveal()` gives the credentials, and a `SecretUrl` refuses to be pickled. Whatever we say about an address goes through
`shown`; whatever others say about it (a driver, the engine, a person's own store) goes through `scrub`.

An unescaped ``#``, ``/`` or ``?`` in a password makes the address parse as another one: part of the password is taken
for the port, the path or the fragment, and shows up in messages. `check_address` refuses such an address before a
driver sees it, and everything up to its last ``@`` counts as secret.
"""

import json
import os
import re
from collections.abc import Iterable
from typing import Any, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlsplit

from recollect.errors import Refused

MARK = "***"
FILES = frozenset({"sqlite", "chroma", "file"})
"""Schemes without credentials: whatever follows is a path."""
USERS_ARE_NO_SECRET = frozenset({"postgresql", "postgres", "pgvector"})
"""With other schemes, a name without a password is more often a token than a name."""

PORT_MAX = 65_535

_SECRET_OPTION = re.compile(r"pass|pwd|secret|token|key|auth|cred", re.IGNORECASE)
_KEYWORD = re.compile(r"\b\w*(?:pass|pwd|secret|token)\w*\s*=\s*('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)
"""``password=…``, as in libpq's other way to write an address."""
_PIECE = re.compile(r"[^:@/?#\[\]&=,\s]{3,}")
_HOST = r"(?:[^:\[\]/?#@,]*|\[[^\]/?#@,]*\])(?::\d*)?"
_SEVERAL_HOSTS = re.compile(
    rf"([a-z][a-z0-9+.-]*)://((?:[^/?#@]*@)?{_HOST}(?:,{_HOST})+)(/[^?#]*)?(?:\?([^#]*))?", re.IGNORECASE
)


class SecretUrl:
    """An address whose credentials are not printed by anything but `reveal()`."""

    __slots__ = ("_whole",)

    def __init__(self, url: "str | SecretUrl") -> None:
        self._whole: str = url._whole if isinstance(url, SecretUrl) else url

    def reveal(self) -> str:
        """The whole address, for a driver."""
        return self._whole

    @property
    def saved(self) -> str:
        """As saved in artifacts: whole if there is nothing to hide, else with a mark where the credentials were."""
        if not secrets_of(self._whole):
            return self._whole
        scheme, _, rest = shown(self._whole).partition("://")
        return f"{scheme}://{MARK}@{rest.removeprefix(f'{MARK}@')}"

    @property
    def complete(self) -> bool:
        """False when it comes from an artifact that left the credentials out."""
        return f"://{MARK}@" not in self._whole

    def __repr__(self) -> str:
        return f"SecretUrl({self.saved!r})"

    def __str__(self) -> str:
        return self.saved

    def __format__(self, spec: str) -> str:
        return format(self.saved, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretUrl) and self._whole == other._whole

    def __hash__(self) -> int:
        return hash(self._whole)

    def __copy__(self) -> "SecretUrl":
        return self

    def __deepcopy__(self, memo: object) -> "SecretUrl":
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"{self!r} is not pickled, for a pickle would hold its credentials; reveal() it on purpose"
        )


def to_artifact(value: Any) -> str:
    """msgspec's `enc_hook` for files: an address without its credentials."""
    if isinstance(value, SecretUrl):
        return value.saved
    raise NotImplementedError(type(value))


def to_pipe(value: Any) -> str:
    """msgspec's `enc_hook` for another process of the same run: the whole address."""
    if isinstance(value, SecretUrl):
        return value.reveal()
    raise NotImplementedError(type(value))


def from_json(kind: type, value: Any) -> SecretUrl:
    """msgspec's `dec_hook` for both."""
    if kind is not SecretUrl:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError("an address is text")  # msgspec makes its own error of it
    return SecretUrl(value)


def scheme_of(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return scheme.lower() if found else ""


def check_address(url: str) -> None:
    """Refuses an address that would be parsed as something other than what was meant, without quoting it."""
    if scheme_of(url) and not _reads_well(url):
        raise Refused(
            f"not an address: {scheme_of(url)}://{MARK}; its port is not a number up to 65535, or its password or "
            "an option has a character that must be percent-encoded: # is %23, / is %2F, ? is %3F, @ is %40, [ is %5B"
        )


def _reads_well(url: str) -> bool:
    scheme = scheme_of(url)
    if scheme in FILES:
        return True
    parts = _split(url)
    if parts is None or "#" in url or any(ord(letter) < 32 for letter in url):
        return False
    # ``redis://app:12?x=34@host/0``: what looks like a path or an option is the rest of the password.
    if "@" in parts.query or ("@" in parts.path and (parts.netloc or scheme != "unix")):
        return False
    hosts = parts.netloc.rpartition("@")[2].split(",")
    found = [re.fullmatch(r"(?:[^:\[\]]*|\[[^\]]*\])(?::(\d*))?", host) for host in hosts]
    return all(match is not None and int(match[1] or 0) <= PORT_MAX for match in found)


def split_address(url: str) -> SplitResult:
    """`urlsplit`, also for several hosts: newer Pythons refuse `a,[::1]:7002`. `ValueError` if it is no address."""
    try:
        return urlsplit(url)
    except ValueError:
        found = _SEVERAL_HOSTS.fullmatch(url)
        if found is None:
            raise
        return SplitResult(found[1].lower(), found[2], found[3] or "", found[4] or "", "")


def _split(url: str) -> SplitResult | None:
    try:
        return split_address(url)
    except ValueError:  # an unbalanced bracket
        return None


def secrets_of(url: str) -> tuple[str, ...]:
    """Every spelling of the credentials in an address, the longest first."""
    found: set[str] = set()
    scheme = scheme_of(url)
    if not scheme:
        found |= _greedy(url) if ":" in url.rpartition("@")[0] else _options_in(url)
    elif not _reads_well(url):
        found |= _greedy(url.partition("://")[2])
    elif scheme not in FILES:
        found |= _well_formed(scheme, split_address(url))
    found.discard(MARK)
    spelled = {spelling for secret in found for spelling in _spellings(secret)}
    return tuple(sorted(filter(None, spelled), key=lambda secret: (-len(secret), secret)))


def _well_formed(scheme: str, parts: SplitResult) -> set[str]:
    found = {value for name, value in parse_qsl(parts.query) if _SECRET_OPTION.search(name)}
    login = parts.netloc.rpartition("@")[0]
    user, colon, password = login.partition(":")
    if colon and password:
        found |= {login, password}
    elif user and scheme.partition("+")[0] not in USERS_ARE_NO_SECRET:
        found.add(user)
    return found


def _greedy(rest: str) -> set[str]:
    """For an address that cannot be parsed: everything in it that may belong to the password."""
    before, at, _ = rest.rpartition("@")
    doubtful = before if at else rest
    password = doubtful.partition(":")[2]
    return {doubtful, password, *_PIECE.findall(password or doubtful)} | _options_in(rest)


def _options_in(text: str) -> set[str]:
    values = {match[1].strip("'") for match in _KEYWORD.finditer(text)}
    return values | {piece for value in values for piece in _PIECE.findall(value)}


def _spellings(secret: str) -> set[str]:
    plain = unquote(secret)
    spelled = {secret, plain, quote(plain, safe=""), quote(plain), quote_plus(plain), plain.replace(" ", "+")}
    return spelled | {repr(one)[1:-1] for one in spelled} | {json.dumps(one)[1:-1] for one in spelled}


def scrub(text: str, *urls: "str | SecretUrl | None") -> str:
    """The text without the credentials of these addresses, since drivers quote what they were given."""
    return Scrubber(urls)(text)


class Scrubber:
    """`scrub` for many texts."""

    def __init__(self, urls: "Iterable[str | SecretUrl | None]") -> None:
        revealed = [url.reveal() if isinstance(url, SecretUrl) else url for url in urls if url is not None]
        secrets = {secret for url in revealed for secret in secrets_of(url)}
        ordered = sorted(secrets, key=lambda secret: (-len(secret), secret))
        # Percent-encoding has no case: %2f is %2F.
        self._pattern = re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE) if ordered else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def __call__(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MARK, text)


def given_secrets(arguments: list[str]) -> Scrubber:
    """Removes what a command was given: credentials of any address among its arguments or in our variables."""
    values = [value for argument in arguments for value in (argument, argument.partition("=")[2])]
    return Scrubber(
        [*values, *(value for name, value in os.environ.items() if name.startswith("RECOLLECT_"))]
    )


def shown(url: "str | SecretUrl") -> str:
    """The address as it may be shown: scheme, host, port and path; no user, no password, no options."""
    whole = url.reveal() if isinstance(url, SecretUrl) else url
    scheme = scheme_of(whole)
    if not scheme:
        return scrub(whole, whole)
    if not _reads_well(whole):
        return f"{scheme}://{MARK}"
    parts = split_address(whole)
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
