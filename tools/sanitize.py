"""The preloaded libraries under the compiler's sanitizers: `make sanitize`, or `python -m tools.sanitize`.

Builds the disk recorder, the movable clock and the prestarted server once with the address and undefined-behaviour
sanitizers and once with the thread sanitizer, and runs the stress program of `tests/disk/stress` under each: threads,
forks, vforks, spawned programs, signals. Exit code 0: nothing found; 1: something was, and it is quoted; 3: this
compiler has no sanitizers, with the reason.

A sanitizer that symbolised its reports would make recorded calls in the midst of one: addr2line does it afterwards.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.disk import stress

from recollect.verify import clock
from recollect.verify.clock import Clock
from recollect.verify.disk import Recorder, building, prestart
from recollect.verify.disk.prestart import Template
from recollect.verify.host import native

CAPACITY_BYTES = 1 << 29
_FRAME = re.compile(r"\((\S+\.so|stress)\+(0x[0-9a-f]+)\)")
_SOURCES = {
    "shim": building.SOURCES,
    "clock": Path(clock.__file__).parent,
    "prestart": Path(prestart.__file__).parent,
}


@dataclass(frozen=True)
class Sanitizer:
    title: str
    flags: tuple[str, ...]
    runtime: str
    """The shared library that has to be the first one preloaded."""
    options: Mapping[str, str]


SANITIZERS = (
    Sanitizer(
        "address and undefined behaviour",
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        "libasan.so",
        {"ASAN_OPTIONS": "detect_leaks=0:symbolize=0", "UBSAN_OPTIONS": "symbolize=0"},
    ),
    Sanitizer(
        "thread",
        ("-fsanitize=thread",),
        "libtsan.so",
        {"TSAN_OPTIONS": "die_after_fork=0:symbolize=0"},
    ),
)


class Unavailable(Exception):
    """This compiler cannot do it; the message says why."""


class Built:
    """Everything compiled with one sanitizer, in one folder."""

    def __init__(self, sanitizer: Sanitizer, place: Path, sources: Mapping[str, Path] = _SOURCES) -> None:
        compiler = native.find_compiler()
        if compiler is None:
            raise Unavailable("there is no C compiler (looked for $CC, cc, gcc, clang)")
        self.sanitizer = sanitizer
        self.place = place
        self._runtime = _runtime(compiler, sanitizer.runtime)
        flags = (*sanitizer.flags, "-fno-omit-frame-pointer")
        try:
            self.program = stress.build(compiler, place / "stress", flags)
            for name, folder in sources.items():
                files = map(str, sorted(folder.glob("*.c")))
                command = [
                    compiler,
                    "-std=gnu11",
                    "-O1",
                    "-g",
                    *flags,
                    "-shared",
                    "-fPIC",
                    "-fvisibility=hidden",
                ]
                libraries = ["-ldl", "-lpthread"]
                subprocess.run([*command, "-o", str(place / f"{name}.so"), *files, *libraries], check=True)
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{compiler} does not build with {' '.join(sanitizer.flags)}") from error

    def env(self, *libraries: str) -> dict[str, str]:
        preloaded = [self._runtime, *(str(self.place / f"{name}.so") for name in libraries)]
        return {"LD_PRELOAD": " ".join(preloaded), **self.sanitizer.options}

    def explained(self, report: str) -> str:
        """The report, with the source line behind each address in what we have built."""
        addr2line = shutil.which("addr2line")
        if addr2line is None:
            return report

        def explain(frame: re.Match[str]) -> str:
            file = self.place / Path(frame[1]).name
            if not file.exists():
                return frame[0]
            command = [addr2line, "-f", "-s", "-e", str(file), frame[2]]
            told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
            return f"{frame[0]} {' '.join(told)}"

        return _FRAME.sub(explain, report)


def _runtime(compiler: str, name: str) -> str:
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        raise Unavailable(f"{compiler} has no {name}; Debian: apt-get install gcc, which brings it")
    return found


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="recollect-sanitize-") as place:
        yield Path(place)


def recorder_found(built: Built, mode: str, children: int) -> str:
    """What one mode of the stress program comes to under the recorder; empty if to nothing."""
    with _folder() as place, Recorder(place, capacity_bytes=CAPACITY_BYTES) as recorder:
        env = {**recorder.env(), **built.env("shim")}
        found = stress.run(built.program, mode, children=children, threads=4, folder=place, env=env)
        return found or ("" if recorder.count else "nothing was recorded: the library was not loaded")


def clock_found(built: Built, children: int) -> str:
    """The same with a clock that is moved and stopped all the time."""
    moved = Clock()
    ended = threading.Event()

    def move() -> None:
        while not ended.is_set():
            moved.move(3600.0)
            moved.freeze()
            moved.heal()

    mover = threading.Thread(target=move)
    mover.start()
    try:
        with _folder() as place:
            env = {**moved.env(), **built.env("clock")}
            return stress.run(built.program, "clock", children=children, threads=4, folder=place, env=env)
    finally:
        ended.set()
        mover.join()
        moved.close()


def prestart_found(built: Built, copies: int) -> str:
    """Copies of a template, each of which has threads, forks and spawns."""
    with _folder() as place:
        template = Template(place / "control")
        env = {**os.environ, **template.env(), **built.env("prestart")}
        command = [str(built.program), "spawn", "2", "2"]
        with subprocess.Popen(
            command, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                if not template.connected(30.0):
                    return "no template: the library was not loaded"
                for _ in range(copies):
                    if status := stress.copy_status(template):
                        process.kill()
                        return f"a copy ended with {status}:\n{process.communicate()[1]}"
            finally:
                template.close()
                process.kill()
    return ""


def checks(built: Built, children: int) -> Iterator[tuple[str, Callable[[], str]]]:
    for mode in stress.MODES:
        yield f"recorder, {mode}", partial(recorder_found, built, mode, children)
    yield "clock", partial(clock_found, built, children)
    yield "prestart", partial(prestart_found, built, max(1, children // 10))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.sanitize", description=__doc__)
    parser.add_argument("--children", type=int, default=60, help="how many a program starts (default: 60)")
    children = parser.parse_args().children
    status = 0
    for sanitizer in SANITIZERS:
        with _folder() as place:
            try:
                built = Built(sanitizer, place)
            except Unavailable as reason:
                print(f"{sanitizer.title}: skipped: {reason}")
                status = status or 3
                continue
            for name, found in checks(built, children):
                complaint = found()
                print(f"{sanitizer.title}: {name}: {'found' if complaint else 'nothing found'}", flush=True)
                if complaint:
                    print(built.explained(complaint)[:8000])
                    status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
