"""Progress while cells run: live on a terminal, one line per cell elsewhere."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from recollect.verify.matrix.matrix import CellEvent
from recollect.verify.matrix.results import Result
from recollect.verify.report.symbols import STYLES, figure


class LiveProgress:
    """Live progress on a terminal; one line per cell elsewhere."""

    def __init__(self, console: Console, cells: int, budget_s: float | None = None) -> None:
        self._console = console
        self._cells = cells
        self._budget_s = budget_s
        self._started = time.monotonic()
        self._ended = 0
        self._current: dict[str, str] = {}
        self._lost = {"documented-loss": 0, "violated": 0}
        self._live = (
            Live(get_renderable=self._picture, console=console, refresh_per_second=8, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> LiveProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: CellEvent) -> None:
        name = event.scenario.title
        if event.kind == "ended":
            self._ended += 1
            self._current.pop(name, None)
            assert event.result is not None
            verdict = event.result.verdict
            if verdict.status in self._lost:
                self._lost[verdict.status] += verdict.lost
            if self._live is None:
                self._console.print(
                    _line(event.result, self._ended, self._cells), highlight=False, soft_wrap=True
                )
        elif event.kind == "left":
            self._current.pop(name, None)
        else:
            self._current[name] = event.step
            if event.kind == "again" and self._live is None and _is_new(event.step):
                self._console.print(f"{event.step}: {name}", style="dim", highlight=False, soft_wrap=True)

    def _picture(self) -> Group:
        """Also called between events, by the display's own thread: the clock keeps running while a cell hangs."""
        elapsed_s = time.monotonic() - self._started
        left = "" if (left_s := self._left_s(elapsed_s)) is None else f", about {left_s:.0f} s left"
        bar = ProgressBar(total=max(1, self._cells), completed=min(self._ended, self._cells), width=40)
        lost = f"lost: {self._lost['documented-loss']} documented, {self._lost['violated']} violated"
        head = Text(f"{self._ended}/{self._cells} cells, {elapsed_s:.0f} s{left} · {lost}")
        current = [
            Text(f"  {name}: {step}", style="dim", no_wrap=True, overflow="ellipsis")
            for name, step in list(self._current.items())[-4:]
        ]
        return Group(Padding(bar), head, *current)  # Padding, because a bar alone does not end its line

    def _left_s(self, elapsed_s: float) -> float | None:
        if not self._ended:
            return None if self._budget_s is None else max(0.0, self._budget_s - elapsed_s)
        by_rate_s = (self._cells - self._ended) * elapsed_s / self._ended
        return by_rate_s if self._budget_s is None else max(0.0, min(by_rate_s, self._budget_s - elapsed_s))


def _is_new(step: str) -> bool:
    """Whether the step deserves a line. Where every line stays, the tries to make a run smaller get only one."""
    return " try " not in step or step.endswith(" try 1")


def _line(result: Result, number: int, cells: int) -> Text:
    symbol, style = STYLES[result.verdict.status]
    line = Text(f"[{number}/{cells}] ")
    line.append(f"{symbol} {result.verdict.status}", style=style)
    line.append(f"  {result.scenario.title}  {figure(result)}  {result.elapsed_s:.1f} s")
    return line
