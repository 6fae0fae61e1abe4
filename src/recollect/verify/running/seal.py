"""Which saved scenarios are this user's own.

A scenario names code: the module of its target, folders to import it from, an interpreter, an engine's configuration
(which can load libraries). Running it again runs that code, so a run folder from somebody else is a program from
somebody else. A scenario that we save is sealed with a key that only this user can read; if the seal is missing or
does not fit, `replay` wants `--trust`.

Does not protect from programs that run as the same user: they can read the key.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from recollect import private
from recollect.regular_files import read_file
from recollect.verify.running.scenario import FILE, Scenario

SEAL = "scenario.seal"
KEY_BYTES = 32


def write(folder: Path) -> None:
    """Seals the scenario in the folder. If no key can be kept there is no seal, and `replay` will say so."""
    key = _key(create=True)
    if key is not None:
        private.write_artifact(folder / SEAL, _seal(key, folder).encode())


def fits(folder: Path) -> bool:
    """Whether the scenario is as this user saved it."""
    key = _key(create=False)
    try:
        found = read_file(folder / SEAL)[: 2 * KEY_BYTES]
    except OSError:
        return False
    return key is not None and hmac.compare_digest(found, _seal(key, folder).encode())


def code_in(scenario: Scenario) -> list[str]:
    """In words, the code that would run because the scenario names it; built-in targets and engines do not count."""
    named = [f"the target {spec}" for spec in (scenario.target, scenario.previous) if spec and ":" in spec]
    named += [f"modules in {path}" for path in scenario.path if Path(path).is_dir()]
    if scenario.previous_python is not None:
        named.append(f"the interpreter {scenario.previous_python}")
    if scenario.engine_config is not None:
        named.append(f"an engine with {scenario.engine_config}")
    if scenario.data is not None:
        named.append(f"an engine on the data in {scenario.data}")
    if scenario.provider is not None and ":" in scenario.provider:
        named.append(f"an engine from {scenario.provider}")
    return named


def _seal(key: bytes, folder: Path) -> str:
    return hmac.new(key, read_file(folder / FILE), hashlib.sha256).hexdigest()


def _key(*, create: bool) -> bytes | None:
    """None unless it is this user's alone."""
    try:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        file = Path(base) / "recollect" / "seal-key"
        if create and not file.exists():
            private.make_folder(file.parent)
            draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
            with open(draft, "xb", opener=private.opener()) as new:
                new.write(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(draft, file)  # appears whole; of two processes at once, the first wins
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)) as kept:
            status = os.fstat(kept.fileno())
            key = kept.read(KEY_BYTES)
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        return None
    alone = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return key if alone and len(key) == KEY_BYTES else None
