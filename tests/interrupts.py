"""A caller interrupted at any step, as by a signal whose handler raises."""

import dis
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def interrupt() -> None:
    raise KeyboardInterrupt


class Interrupts:
    """Calls the handler once in the calling thread, at the nth place where a signal's could be called: where a function
    begins, after a call, and where a loop begins again; in these files, and in those that any wait for a thread goes
    through.
    """

    PLACES = ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")

    def __init__(self, step: int, files: tuple[str, ...], handler: Callable[[], object] = interrupt) -> None:
        self.left = step
        self._handler = handler
        self._files = (*files, "threading.py", "futures/_base.py")
        self._thread = threading.get_ident()
        self._before: dict[int, str] = {}  # by frame, which must not be kept

    def __enter__(self) -> "Interrupts":
        if sys.version_info < (3, 12):
            sys.settrace(self._entered)
            return self
        # What settrace shows of a function's steps depends on its earlier calls from Python 3.13 on.
        watching = sys.monitoring
        watching.use_tool_id(watching.DEBUGGER_ID, "interrupts")
        watching.register_callback(watching.DEBUGGER_ID, watching.events.INSTRUCTION, self._instruction)
        watching.set_events(watching.DEBUGGER_ID, watching.events.INSTRUCTION)
        watching.restart_events()
        return self

    def __exit__(self, *raised: object) -> None:
        if sys.version_info < (3, 12):
            sys.settrace(None)
            return
        watching = sys.monitoring
        watching.set_events(watching.DEBUGGER_ID, watching.events.NO_EVENTS)
        watching.free_tool_id(watching.DEBUGGER_ID)

    def _entered(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        frame.f_trace_opcodes = True
        self._before.pop(id(frame), None)
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self._step(frame, frame.f_code.co_code[frame.f_lasti])
        return self._stepped

    def _instruction(self, code: CodeType, offset: int) -> Any:
        if not code.co_filename.endswith(self._files):
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        if threading.get_ident() == self._thread:
            self._step(sys._getframe(1), code.co_code[offset])
        return None

    def _step(self, frame: FrameType, instruction: int) -> None:
        name = dis.opname[instruction]
        self.left -= name != "RESUME" and self._before.get(id(frame)) in self.PLACES
        self._before[id(frame)] = name
        if self.left == 0:
            self.left = -1
            self._handler()
