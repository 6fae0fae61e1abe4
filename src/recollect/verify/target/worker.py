"""A worker: one client of the target, in an operating-system process of its own that can be killed at any moment.

It does what the runner asks, one request at a time, and answers over a pipe. What it knows does not count: an
acknowledgement exists only once the runner has received it. Between requests its event loop keeps running, because
stores do things in the background.

Several callers of one store share a process, each with its own pipe: as tasks if the store is asynchronous, else as
threads.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from recollect import private
from recollect.verify import clock
from recollect.verify.disk.recorder import attach
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host import interrupts
from recollect.verify.target import held_statements, outcomes, pipe, real_settings
from recollect.verify.target.held_tables import hold_tables
from recollect.verify.target.interface_choice import Form
from recollect.verify.target.line_watching import LineWatch, files_of, wrapped_by
from recollect.verify.target.patience import GaveUp, Patience
from recollect.verify.target.read_limits import NOBODY
from recollect.verify.target.returned import elements
from recollect.verify.target.sent_requests import Sending
from recollect.verify.target.shape import BadTarget
from recollect.verify.target.target import FactoryRaised, Target, prepare_of, resolve

_PR_SET_PDEATHSIG = 1
SWITCH_S = 0.0005
"""The interpreter's switch interval if several threads share a store: a tenth of the default."""
PROBE = pipe.Read(NOBODY)
WRITING = (pipe.AppendMessages, pipe.Save, pipe.Replace, pipe.Retract, pipe.MakeCopy, pipe.Forget)


def main(
    connection: Connection,
    spec: str,
    endpoint: Endpoint,
    log: str,
    prepare: bool,
    control: str | None,
    recorded: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    beside: Sequence[Connection] = (),
    form: Form = "",
) -> None:
    """Entry point of the process. `prepare` runs the target module's own ``prepare(endpoint)`` first; `control` is
    the control file of its wall clock, `recorded` the environment of a disk recorder, `environment` what the target
    itself needs; `beside` are the pipes of further callers; `form` is the form of messages that the store takes."""
    # If the runner's process dies, so does its fork server, and so do we, whatever we are doing.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.taken_again()  # processes that the target starts decide for themselves
    try:
        redirect_output(Path(log))
    except FileNotFoundError:
        return  # the run was interrupted and removed its folder: nobody is waiting for us
    os.environ.update(environment or {})
    if (gate := os.environ.pop(held_statements.VARIABLE, None)) is not None:
        held_statements.hold_statements(int(gate))
    if recorded is not None:
        attach(recorded)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        asyncio.run(_Responder(connection, spec, endpoint, beside, form).run(prepare, control))


def redirect_output(log: Path) -> None:
    """Sends what a target prints to a file. It redirects the descriptors, because libraries in C print too."""
    opener = private.opener(private.from_environment())
    descriptor = opener(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


class _Responder:
    """Opens the target and answers one request after another."""

    def __init__(
        self,
        connection: Connection,
        spec: str,
        endpoint: Endpoint,
        beside: Sequence[Connection] = (),
        form: Form = "",
    ) -> None:
        self._connection = connection
        self._form = form
        self._beside = [_FellowCaller(one, spec, endpoint) for one in beside]
        self._spec = spec
        self._endpoint = endpoint
        self._watch: LineWatch | None = None
        self._watched = False
        # What several callers send at the same time cannot be told apart.
        self._sending = None if beside else self._watch_sending()
        self._patience = Patience()
        self._scrub = endpoint.scrubber

    async def run(self, prepare: bool, control: str | None) -> None:
        try:
            if control is not None:
                clock.obey(control)
            # Only the first worker is asked: all are opened the same way, and asking takes time.
            with real_settings.remembering() if prepare else contextlib.nullcontext():
                target = await self._open(prepare)
                if prepare:
                    with contextlib.suppress(Exception):  # nobody answered: it is asked again when it matters
                        await target.ask_for_the_most()
                settings = await real_settings.read_back(self._endpoint) if prepare else []
            ready = pipe.Ready(
                target.shape.name,
                target.abilities,
                target.traits,
                target.retention_s,
                target.is_async,
                target.expected_errors,
                target.keeps_last,
                settings,
                target.release,
                target.refresh,
                target.loss_errors,
                target.is_open,
            )
        except (BadTarget, FactoryRaised) as error:
            self._send(pipe.Broken(self._scrub(str(error))))
            return
        except Exception as error:
            self._send(pipe.Broken(f"target {self._spec!r}: {outcomes.describe(error, self._scrub)}"))
            return
        self._send(ready)
        if target.is_async:
            await asyncio.gather(self._serve(target), *(one.work(target, ready) for one in self._beside))
        else:
            await self._serve_beside_threads(target, ready)
        with contextlib.suppress(Exception):
            await target.close()

    def _watch_sending(self) -> Sending | None:
        return Sending()

    async def _serve(self, target: Target) -> None:
        while not isinstance(request := await self._receive(), pipe.Close):
            if isinstance(request, pipe.Watch):
                self._send(self._arm(target, request))
            elif isinstance(request, pipe.GiveUp):
                self._patience.give_up_after(request.share)
            elif isinstance(request, pipe.HoldTables):
                neighbour = (self._endpoint.path, request.until)
                threading.Thread(target=hold_tables, args=neighbour, daemon=True).start()
            elif isinstance(request, pipe.WriteAndTell):
                self._send(pipe.ToldSettings(await self._settings_when_writing(target, request.said)))
            else:
                self._send(await self._answer(target, request))

    async def _serve_beside_threads(self, target: Target, ready: pipe.Ready) -> None:
        if self._beside:
            sys.setswitchinterval(SWITCH_S)
            with contextlib.suppress(Exception):
                # This thread also makes the stores per session, as it makes a shared one.
                await perform(target, PROBE)
        threads = [
            threading.Thread(target=asyncio.run, args=(one.work(target, ready),), daemon=True)
            for one in self._beside
        ]
        for thread in threads:
            thread.start()
        await self._serve(target)
        for thread in threads:
            await asyncio.to_thread(thread.join)

    async def _open(self, prepare: bool) -> Target:
        target = Target(self._spec, self._endpoint, self._form)
        if prepare and (step := prepare_of(self._spec)) is not None:
            result = step(self._endpoint)
            if asyncio.iscoroutine(result):
                await result
            real_settings.forget()
        await target.open()
        return target

    async def _settings_when_writing(self, target: Target, said: pipe.Said) -> list[real_settings.Settings]:
        write = pipe.Save if target.shape.whole_list else pipe.AppendMessages
        with real_settings.remembering():
            with contextlib.suppress(Exception):  # the run itself will tell
                await perform(target, write(PROBE.session, [said]))
            return await real_settings.read_back(self._endpoint)

    async def _answer(self, target: Target, request: pipe.Request) -> pipe.Reply:
        writing = isinstance(request, WRITING)
        watch = self._watch if self._watched and writing else contextlib.nullcontext()
        if self._sending is not None:
            self._sending.begin()
        try:
            with watch:  # type: ignore[union-attr]
                reply = await self._patience.wait_for(type(request), perform(target, request))
        except GaveUp:
            return pipe.Failed("unknown", "the caller gave up", given_up=True)
        except Exception as error:
            alone = self._sending is not None and self._sending.only_one_write()
            outcome = outcomes.of_write(error, only_write=alone) if writing else outcomes.of_read(error)
            return pipe.Failed(outcome, outcomes.describe(error, self._scrub), outcomes.kinds(error))
        if self._watched and writing and self._watch is not None and self._watch.seen:
            self._watched = False
            return pipe.Lines(self._watch.seen)
        return reply

    def _arm(self, target: Target, request: pipe.Watch) -> pipe.Reply:
        if self._watch is None:
            factory = resolve(self._spec)
            adapted = [thing for store in target.stores for thing in wrapped_by(store)]
            self._watch = LineWatch(files_of(factory, *target.stores, *adapted))
        self._watch.arm(request.how, request.line, self._stand_at)
        self._watched = True
        return pipe.Acked()

    def _stand_at(self, line: str) -> None:
        """Waits at the line until the runner says to go on. Called inside the store's own code."""
        self._send(pipe.AtLine(line))
        self._connection.recv_bytes()

    async def _receive(self) -> pipe.Word:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._connection.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._connection.fileno())
        request: pipe.Word = pipe.decode_request(self._connection.recv_bytes())
        return request

    def _send(self, reply: pipe.Reply) -> None:
        self._connection.send_bytes(pipe.encode(reply))


class _FellowCaller(_Responder):
    """Another caller of a store that is already open."""

    def _watch_sending(self) -> Sending | None:
        return None

    async def work(self, target: Target, ready: pipe.Ready) -> None:
        """Serves requests until it is told to close; ends at once if the store refuses its thread."""
        own = target.for_caller()
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            if (refusal := await self._thread_refused(own)) is not None:
                self._send(pipe.Broken(refusal))
                return
            self._send(ready)
            await self._serve(own)

    async def _thread_refused(self, target: Target) -> str | None:
        """Why the store refuses this thread, if it belongs to the one that opened it; else None."""
        if threading.current_thread() is threading.main_thread():
            return None
        try:
            await perform(target, PROBE)
        except Exception as error:
            if "thread" in str(error):
                return (
                    f"the store belongs to the thread that opened it: {outcomes.describe(error, self._scrub)}"
                )
        return None


async def perform(target: Target, request: pipe.Request) -> pipe.Reply:
    """Carries the request out on the store and returns the reply."""
    match request:
        case pipe.AppendMessages(session, said, turn, expect, beside):
            if beside:
                return await target.append_many({session: said, **beside}, turn)
            return await target.append(session, said, turn, expect)
        case pipe.Save(session, said, drop):
            return await target.save(session, said, drop)
        case pipe.Replace(session, said, turn, expect):
            return await target.replace(session, said, turn, expect)
        case pipe.Retract(session, places, turn, expect):
            return await target.retract(session, places, turn, expect)
        case pipe.MakeCopy(session, new, turn, expect):
            return await target.fork(session, new, turn, expect)
        case pipe.Read(session, last, after, positioned):
            position = await target.position(session) if positioned else None
            raw, sequence = await target.read(session, last, after)
            seen = elements(raw, sequence, target.interface)
            seen.position = position
            return seen
        case pipe.ReadContext(session):
            parts = await target.context(session)
            return pipe.Parts([elements(part, interface=target.interface) for part in parts])
        case pipe.Forget(session):
            await target.forget(session)
            return pipe.Acked()
        case pipe.SearchIndex(session):
            listed, found = await target.search(session)
            how = target.interface
            return pipe.FoundBy(
                elements(listed, interface=how).numbers, elements(found, interface=how).numbers
            )
    raise AssertionError(request)
