"""A watch's counters for Prometheus: ``GET /metrics``, on a port of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from recollect.watch.alarm import MEANINGS

REQUEST_BYTES_MAX = 8_192
REQUEST_S = 5.0


@dataclass
class WatchMetrics:
    alarms: Counter[str] = field(default_factory=Counter)
    appends: int = 0
    append_s: float = 0.0
    """The total for all appends."""
    last_append_s: float = 0.0
    slow: int = 0
    """Appends that took longer than they may, those that were never an alarm among them."""
    up: int = 0
    heard_at: float = 0.0
    replica_lag_s: float = 0.0

    def text(self) -> str:
        """The metrics in Prometheus's text format."""
        values = [
            ("up", "gauge", "Whether the engine answered last time.", self.up),
            ("appends_total", "counter", "Messages of the canary that were acknowledged.", self.appends),
            (
                "append_seconds_total",
                "counter",
                "Time until they were acknowledged, together.",
                self.append_s,
            ),
            ("last_append_seconds", "gauge", "The same of the last one.", self.last_append_s),
            ("slow_appends_total", "counter", "Those that took longer than they may.", self.slow),
            (
                "heard_timestamp_seconds",
                "gauge",
                "When everything was last found as it must be.",
                self.heard_at,
            ),
            (
                "replica_lag_seconds",
                "gauge",
                "How long the replica has lacked a message.",
                self.replica_lag_s,
            ),
        ]
        lines: list[str] = []
        for name, kind, told, value in values:
            lines += [
                f"# HELP recollect_watch_{name} {told}",
                f"# TYPE recollect_watch_{name} {kind}",
                f"recollect_watch_{name} {value}",
            ]
        lines += [
            "# HELP recollect_watch_alarms_total Alarms, by name.",
            "# TYPE recollect_watch_alarms_total counter",
        ]
        lines += [
            f'recollect_watch_alarms_total{{name="{name}"}} {self.alarms[name]}'
            for name in sorted({*MEANINGS, *self.alarms})  # those at 0 too, or the first would be no increase
        ]
        return "\n".join(lines) + "\n"


async def serve(metrics: WatchMetrics, host: str, port: int) -> asyncio.Server:
    """Answers GET /metrics, and nothing else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                found = request.split(b" ", 2)[:2] in ([b"GET", b"/metrics"], [b"GET", b"/metrics/"])
                body = (metrics.text() if found else "there is only /metrics\n").encode()
                status = b"200 OK" if found else b"404 Not Found"
                head = b"HTTP/1.1 %b\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n"
                writer.write(head % (status, len(body)) + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES_MAX)
