"""The page of `recollect explore --html`: how many crash states there were, and the first bad one in words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from recollect import __version__
from recollect.printable import printable

COUNTS = {
    "violated": "lost what was acknowledged, or read it wrongly",
    "unsure": "violated at first and not when judged again: a bug of ours to report",
    "refused": "refused by the engine, which is loud",
    "documented": "lost what the engine's documentation allows",
    "held": "held",
}
STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}th,td{text-align:left;padding:.2rem 1rem .2rem 0;font-weight:400}"
    "td{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid;padding-left:1rem}"
)


def page(explorations: Sequence[dict[str, Any]]) -> str:
    """`explorations` are as in the JSON document."""
    title = f"{_headline(explorations)} · recollect explore"
    parts = [part for one in explorations for part in _exploration(one)]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title><style>{STYLE}</style></head><body><main>",
            f"<h1>{_text(_headline(explorations))}</h1>",
            "<p>One run was recorded call by call. Each state is a disk that a power loss could have left then; the"
            " engine was started on it, and everything acknowledged was looked for.</p>",
            *parts,
            f"<p>recollect {_text(__version__)}</p></main></body></html>",
            "",
        ]
    )


def _headline(explorations: Sequence[dict[str, Any]]) -> str:
    violated = sum(one["violated"] for one in explorations)
    tried = sum(one["tried"] for one in explorations)
    return f"{violated:,} of {tried:,} crash states violated"


def _exploration(one: dict[str, Any]) -> list[str]:
    name = f"{one['target']} on {one['engine']} {one['engine_version']}, {one['policy']}, {one['mode']}"
    rows = [
        f'<tr><th scope="row">{_text(words)}</th><td>{one[count]:,}</td></tr>'
        for count, words in COUNTS.items()
        if one[count] or count in ("violated", "held")
    ]
    part = "" if one["tried"] == one["states"] else " The budget ended before all of them were judged."
    return [
        f"<h2>{_text(name)}</h2>",
        f"<p>Level {one['level']}: {one['tried']:,} of {one['states']:,} {_states(one)} judged.{part}</p>",
        f"<table><tbody>{''.join(rows)}</tbody></table>",
        *(f"<p>unknown: {_text(why)}</p>" for why in one["disagreements"]),
        *(_first_bad(one["first_bad"]) if one["first_bad"] else ()),
    ]


def _states(one: dict[str, Any]) -> str:
    return (
        "states" if one["depth"] == 1 else "states of a second crash, during the recovery from a first one,"
    )


def _first_bad(bad: dict[str, Any]) -> list[str]:
    steps = [*bad["calls"], f"power loss, before {bad['next_call']}"]
    return [
        f"<h3>The first bad state: {_text(bad['anomaly'])}</h3>",
        f"<p>{_text(bad['detail'])}</p>",
        f"<p>Acknowledged last: {_text(bad['acknowledged'])}. After that:</p>",
        f"<ol>{''.join(f'<li>{_text(step)}</li>' for step in steps)}</ol>",
        f"<p>Not yet on the disk: {_text('; '.join(bad['unsynced']) or 'nothing')}</p>",
        f"<p>What the power loss left: {_text(bad['left'])}</p>",
        f"<pre>{_text(bad['open'])}\n{_text(bad['look'])}</pre>",
    ]


def _text(value: object) -> str:
    return escape(printable(str(value)))
