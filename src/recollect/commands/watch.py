"""`recollect watch URL`: a canary beside production; an alarm within seconds when acknowledged memory is gone."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from recollect import exit_codes
from recollect.audit.auditing import check_auditable
from recollect.audit.sqlite import file_of
from recollect.commands.console import echo
from recollect.doctor.examination import POSTGRES, REDIS, check_one_server
from recollect.errors import CannotOpen, EngineUnavailable, RecollectError, Refused
from recollect.printable import counted, printable
from recollect.secret import scheme_of, scrub, shown
from recollect.watch import Canary, CanaryMemory, CanaryWatch
from recollect.watch.alarm import UNREACHABLE
from recollect.watch.canary import Removed, address_of_file
from recollect.watch.memory import MemoryFailed
from recollect.watch.metrics import serve

_Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar="RECOLLECT_URL",
        show_envvar=True,
        help="The store, as given to open_store. In the environment a password is not seen by `ps`.",
    ),
]
_Memory = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where the canary remembers what was acknowledged: a small file, on another disk than the engine's. "
        "[default: recollect-watch-….db in this folder]",
    ),
]
_Replica = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A replica to read from as well, redis://… or postgresql://…"),
]
_EveryS = Annotated[
    float, typer.Option("--every", metavar="SECONDS", help="Time between two rounds.", min=0.05)
]
_SlowS = Annotated[
    float, typer.Option("--slow", metavar="SECONDS", help="An acknowledgement may take this long.", min=0)
]
_StaleS = Annotated[
    float, typer.Option("--stale", metavar="SECONDS", help="A replica may be this late.", min=0)
]
_PatienceS = Annotated[
    float,
    typer.Option("--patience", metavar="SECONDS", help="The engine may be silent this long.", min=0),
]
_Command = Annotated[
    str,
    typer.Option(metavar="COMMAND", help="Run on each alarm, which it gets as JSON on standard input."),
]
_Prometheus = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Serve /metrics here, such as 127.0.0.1:9464.")
]
_Once = Annotated[bool, typer.Option("--once", help="One round, for a timer or CI.")]
_Rounds = Annotated[
    int,
    typer.Option(metavar="N", help="End after this many rounds; 0 goes on until it is stopped.", min=0),
]
_Clean = Annotated[
    bool,
    typer.Option(
        "--clean", help="Delete the canary's sessions from the engine and its own memory, then exit."
    ),
]
_TimeoutS = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="Time limit for each answer of the engine.", min=0.1),
]


def watch(
    url: _Url,
    memory: _Memory = None,
    replica: _Replica = None,
    every_s: _EveryS = 1.0,
    slow_s: _SlowS = 1.0,
    stale_s: _StaleS = 5.0,
    patience_s: _PatienceS = 30.0,
    command: _Command = "",
    prometheus: _Prometheus = "",
    once: _Once = False,
    rounds: _Rounds = 0,
    clean: _Clean = False,
    timeout_s: _TimeoutS = 5.0,
) -> None:
    """Append at a low rate, remember elsewhere what was acknowledged, and report when it is gone. Prints JSON lines.

    Exit codes: 0 nothing was lost, 1 an alarm with --once or --rounds, 2 usage, 3 the engine could not be reached.
    """
    try:
        check_auditable(url)
        if replica is not None:
            check_one_server(replica)
            check_auditable(replica)
            if _engine_of(replica) != _engine_of(url):
                raise Refused(f"--replica {shown(replica)} is of another engine than {shown(url)}")
        address = _host_and_port(prometheus) if prometheus else None
        words = _words(command)
        remembered = _memory_of(url, memory, clean=clean)
    except ValueError as error:  # `Refused` among them
        _fail(str(error), url, exit_codes.USAGE)
    except CannotOpen as error:
        _fail(str(error), url, exit_codes.USAGE)
    except MemoryFailed as error:
        _fail(str(error), url, exit_codes.INCONCLUSIVE)
    canary = Canary(url, remembered, replica=replica, timeout_s=timeout_s, stale_s=stale_s)
    watching = CanaryWatch(canary, _say, url, slow_s, 0.0 if once else patience_s, command=words)
    try:
        if clean:
            told = _told(asyncio.run(_cleaned(canary)), remembered.path)
            code = exit_codes.HELD
        else:
            code = asyncio.run(_watch(watching, every_s, address, 1 if once else rounds))
    except EngineUnavailable as error:
        _fail(str(error), url, exit_codes.INCONCLUSIVE)
    except RecollectError as error:
        _fail(str(error), url, exit_codes.USAGE)
    except MemoryFailed as error:
        _fail(str(error), url, exit_codes.INCONCLUSIVE)
    except OSError as error:
        _fail(f"standard output: {error.strerror or error}", url, exit_codes.USAGE)
    finally:
        remembered.close()
    if clean:
        remembered.remove()
        echo(told)
    raise typer.Exit(code)


def _engine_of(url: str) -> str:
    scheme = scheme_of(url).partition("+")[0]
    return "redis" if scheme in REDIS else "postgres" if scheme in POSTGRES else scheme


def _memory_of(url: str, given: Path | None, *, clean: bool) -> CanaryMemory:
    memory = given or Path(f"recollect-watch-{address_of_file(shown(url))}.db")
    if not memory.exists():
        if clean:
            raise Refused(f"{memory}: there is no such file; name the watch's memory with --memory")
        if scheme_of(url) == "sqlite":
            file_of(url)  # a file that was never seen is mistyped; one that is gone is an alarm
    return CanaryMemory(memory, shown(url))


async def _watch(watching: CanaryWatch, every_s: float, address: tuple[str, int] | None, rounds: int) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        server = None if address is None else await serve(watching.metrics, *address)
    except OSError as error:
        raise Refused(
            f"--prometheus {':'.join(map(str, address or ()))}: {error.strerror or error}"
        ) from None
    try:
        names = await watching.run(every_s, stop, rounds)
    finally:
        if server is not None:
            server.close()
        await watching.canary.close()
    if not rounds:
        return exit_codes.HELD
    if names - {UNREACHABLE}:
        return exit_codes.VIOLATED
    return exit_codes.INCONCLUSIVE if names or not watching.metrics.up else exit_codes.HELD


async def _cleaned(canary: Canary) -> Removed:
    try:
        return await canary.clean_up()
    finally:
        await canary.close()


def _told(removed: Removed, memory: Path) -> str:
    if not removed.sessions:
        return f"the engine had none of its messages; removed {memory}"
    sessions, messages = counted(removed.sessions, "session"), counted(removed.messages, "message")
    return f"removed {sessions} with {messages} from the engine, and {memory}"


def _say(event: dict[str, object]) -> None:
    sys.stdout.write(printable(json.dumps(event, ensure_ascii=True)) + "\n")
    sys.stdout.flush()


def _words(command: str) -> list[str]:
    """Of the webhook command. One that is not there is noticed now, not at the first alarm."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Refused(f"--command {command!r}: {error}") from None
    if words and shutil.which(words[0]) is None:
        raise Refused(f"--command {words[0]!r}: there is no such program, or it may not be run")
    return words


def _host_and_port(given: str) -> tuple[str, int]:
    host, colon, port = given.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise Refused(f"--prometheus {given!r}: a host and a port, such as 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def _fail(reason: str, url: str, code: int) -> NoReturn:
    echo(f"recollect watch: {scrub(reason, url)}", err=True)
    raise typer.Exit(code) from None
