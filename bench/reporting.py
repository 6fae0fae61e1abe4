"""The benchmark's table, its verdict against the figures we want to reach, and its JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from contenders.apart import OursApart, OursWithApi, OursWithoutApi
from contenders.contender import Contender
from contenders.ours import Ours, OursObserved
from contenders.raw import RAW, RAW_DECODING
from measuring import (
    APPEND,
    APPEND_EIGHT,
    APPEND_MANY,
    APPEND_SHARED,
    COLUMNS,
    READ_LARGE,
    READ_SMALL,
    Column,
    Rates,
    Spread,
    is_peer,
)

APPEND_LEAST: dict[str, dict[Column, float]] = {
    "redis": {APPEND: 0.9, APPEND_EIGHT: 1.6, APPEND_MANY: 3.0},
    "postgres": {APPEND: 0.9, APPEND_EIGHT: 1.3, APPEND_MANY: 2.0},
    "sqlite": {APPEND: 0.9, APPEND_EIGHT: 3.5},
}
READ_MOST = 1.5
READ_LARGE_MOST = 1.3
FAR_WORSE = 2.0
"""A peer that is ahead in one column is only then behind on the whole if it is this many times behind in the other."""


@dataclass
class EngineResult:
    engine: str
    description: str
    """Product, version and policy, as the running engine says."""
    contenders: Sequence[Contender]
    rates: Rates
    skipped: dict[str, str] = field(default_factory=dict)
    """Peers that did not take part, and why."""


def cell(result: EngineResult, column: Column, contender: str) -> Spread | None:
    """What the column says of a contender: appends ÷ raw, time of a read × raw, or × its own small read."""
    if column is READ_LARGE:
        return result.rates.ratio(column, contender, READ_SMALL, contender, of_time=True)
    return result.rates.ratio(column, contender, column, RAW, of_time=column is READ_SMALL)


HEADINGS = {
    APPEND.key: "append: 1 client\n(rate × raw)",
    APPEND_EIGHT.key: "8 clients, 8 sessions\n(rate × raw)",
    APPEND_SHARED.key: "8 clients, 1 session\n(rate × raw)",
    APPEND_MANY.key: "64 clients, 64 sessions\n(rate × raw)",
    READ_SMALL.key: "last 100 of 1,000\n(time × raw)",
    READ_LARGE.key: "last 100 of 100,000\n(time × of 1,000)",
}


def print_table(console: Console, result: EngineResult) -> None:
    table = Table(title=result.description, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("operations a second", no_wrap=True)
    for column in COLUMNS:
        table.add_column(HEADINGS[column.key], justify="right", no_wrap=True)
    for contender in result.contenders:
        cells = [_shown(result, column, contender.name) for column in COLUMNS]
        table.add_row(
            contender.name, *cells, style="bold" if isinstance(contender, Ours | OursApart) else None
        )
    console.print(table)
    for contender in result.contenders:
        if contender.note:
            console.print(f"  {contender.name}: {contender.note}", highlight=False)
    for note in (decoding_note(result), observed_note(result)):
        if note:
            console.print(note, highlight=False)
    for name, why in result.skipped.items():
        console.print(f"  {name}: skipped, {why}", highlight=False)
    for name, why in result.rates.failed.items():
        console.print(f"  {name}: failed, {why}", highlight=False)
    console.print()


def _shown(result: EngineResult, column: Column, contender: str) -> str:
    rate = result.rates.rate(column, contender)
    if rate is None:
        return "–"
    speed = f"{rate.median:,.0f}" if rate.median >= 10 else f"{rate.median:.2g}"
    ratio = cell(result, column, contender)
    if ratio is None or (contender == RAW and column is not READ_LARGE):
        return speed
    return f"{speed}\n{_ratio(ratio)}"


def _ratio(ratio: Spread) -> str:
    digits = 2 if ratio.high < 10 else 1 if ratio.high < 100 else 0
    return f"×{ratio.median:.{digits}f} ({ratio.low:.{digits}f}–{ratio.high:.{digits}f})"


@dataclass(frozen=True)
class Finding:
    engine: str
    what: str
    demanded: str
    found: str
    reached: bool


def findings(results: Sequence[EngineResult]) -> Iterator[Finding]:
    for result in results:
        yield from _figures(result)
        yield from _unobserved(result)
        yield from _peers(result)


def _figures(result: EngineResult) -> Iterator[Finding]:
    for column, least in APPEND_LEAST[result.engine].items():
        ratio = cell(result, column, Ours.name)
        if ratio is not None:
            yield Finding(
                result.engine, column.title, f"≥ {least} × raw", _ratio(ratio), ratio.median >= least
            )
    for column, most, what in ((READ_SMALL, READ_MOST, "raw"), (READ_LARGE, READ_LARGE_MOST, "of 1,000")):
        ratio = cell(result, column, Ours.name)
        if ratio is not None:
            yield Finding(
                result.engine, column.title, f"≤ {most} × {what}", _ratio(ratio), ratio.median <= most
            )


def _unobserved(result: EngineResult) -> Iterator[Finding]:
    """A cost can be measured if it is larger than what the rounds differ by."""
    for column in (APPEND, READ_SMALL):
        ratio = result.rates.ratio(column, OursWithApi.name, column, OursWithoutApi.name)
        if ratio is not None:
            yield Finding(
                result.engine,
                f"{column.title}, opentelemetry-api there",
                "no cost beyond the spread",
                f"{_ratio(ratio)} of the rate without",
                ratio.high >= 1,
            )


def _peers(result: EngineResult) -> Iterator[Finding]:
    """Both columns together: no peer is better in one of them without being far worse in the other."""
    our_append, our_read = cell(result, APPEND, Ours.name), cell(result, READ_SMALL, Ours.name)
    if our_append is None or our_read is None:
        return
    for peer in filter(is_peer, result.contenders):
        append, read = cell(result, APPEND, peer.name), cell(result, READ_SMALL, peer.name)
        if append is None or read is None:
            continue
        append_lead = append.median / our_append.median
        read_lead = our_read.median / read.median
        better, worse = max(append_lead, read_lead), min(append_lead, read_lead)
        yield Finding(
            result.engine,
            f"beside {peer.name}",
            "in both together",
            f"its appends ×{append_lead:.2f}, its reads ×{read_lead:.2f} of our speed",
            better <= 1 or worse <= 1 / FAR_WORSE,
        )


def decoding_note(result: EngineResult) -> str | None:
    """The raw driver returns bytes and a store returns messages, so this is the fairer comparison of the two."""
    ratio = result.rates.ratio(READ_SMALL, Ours.name, READ_SMALL, RAW_DECODING, of_time=True)
    return f"  {READ_SMALL.title}, of the time of {RAW_DECODING}: {_ratio(ratio)}" if ratio else None


def observed_note(result: EngineResult) -> str | None:
    """What spans and metrics cost those who ask for them; what they cost the others is one of the findings."""
    ratios = [
        (column.title, result.rates.ratio(column, OursObserved.name, column, Ours.name))
        for column in (APPEND, READ_SMALL)
    ]
    told = [f"{title} {_ratio(ratio)}" for title, ratio in ratios if ratio is not None]
    return f"  with the SDK of OpenTelemetry, of the rate without: {', '.join(told)}" if told else None


def print_verdict(console: Console, found: Sequence[Finding]) -> None:
    table = Table(title="Figures to reach (medians decide)", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("engine", "what", "demanded", "found", ""):
        table.add_column(heading)
    for finding in found:
        mark = "reached" if finding.reached else "[bold]short[/bold]"
        table.add_row(finding.engine, finding.what, finding.demanded, finding.found, mark)
    console.print(table)


def as_json(
    results: Sequence[EngineResult], found: Sequence[Finding], machine: dict[str, Any]
) -> dict[str, Any]:
    return {
        "machine": machine,
        "engines": [_engine_json(result) for result in results],
        "findings": [vars(finding) for finding in found],
    }


def _engine_json(result: EngineResult) -> dict[str, Any]:
    return {
        "engine": result.engine,
        "description": result.description,
        "skipped": result.skipped,
        "failed": result.rates.failed,
        "contenders": {
            contender.name: {
                "note": contender.note,
                "columns": {
                    column.key: _column_json(result, column, contender.name)
                    for column in COLUMNS
                    if result.rates.rate(column, contender.name) is not None
                },
            }
            for contender in result.contenders
        },
    }


def _column_json(result: EngineResult, column: Column, contender: str) -> dict[str, Any]:
    rate, ratio = result.rates.rate(column, contender), cell(result, column, contender)
    rounds = result.rates.by_column[column.key][contender]
    return {
        "ops_per_s": None if rate is None else _spread_json(rate, 1),
        "ratio": None if ratio is None else _spread_json(ratio, 4),
        "rounds_ops_per_s": {str(number): round(value, 1) for number, value in sorted(rounds.items())},
    }


def _spread_json(spread: Spread, digits: int) -> dict[str, float]:
    return {name: round(value, digits) for name, value in spread._asdict().items()}
