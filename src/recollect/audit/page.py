"""An audit as one HTML page: no script, no network, every text escaped."""

from __future__ import annotations

from html import escape

from recollect import __version__
from recollect.audit.finding import MEANINGS, AuditFinding
from recollect.audit.report import AuditReport
from recollect.printable import counted, printable

_STYLE = """
:root { color-scheme: light dark; --page: #f6f6f4; --card: #fff; --ink: #1a1e24; --muted: #535c68; --line: #d8dbe0;
  --violated: #a8121d; --exposed: #714500; --held: #0f5c2b; }
@media (prefers-color-scheme: dark) { :root { --page: #101318; --card: #181c22; --ink: #e7eaef; --muted: #a5aebb;
  --line: #2e3641; --violated: #ff9ea0; --exposed: #f3c46e; --held: #84db9f; } }
body { margin: 0 auto; max-width: 1000px; padding: 24px; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1.violated { color: var(--violated); } h1.exposed { color: var(--exposed); } h1.held { color: var(--held); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 4px 18px;
  margin: 14px 0; }
.muted { color: var(--muted); } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-top: 1px solid var(--line); }
"""


def render(report: AuditReport) -> str:
    """The page. Its content security policy keeps it from loading anything, whatever a session id contains."""
    facts = f"{counted(report.messages, 'message')} of {counted(report.sessions, 'session')}, {report.elapsed_s:,.1f} s"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>recollect audit: {report.status}</title><style>{_STYLE}</style>",
        f'<h1 class="{report.status}">{report.headline}</h1>',
        f"<p>{_text(report.read_by)}: {facts}.",
        '<span class="muted">Nothing was changed.</span>',
        *(_findings(name, count, report.findings) for name, count in report.counts.items()),
        _settings(report),
        f'<p class="muted">recollect {__version__}</p></html>\n',
    ]
    return "\n".join(parts)


def _findings(name: str, count: int, findings: tuple[AuditFinding, ...]) -> str:
    rows = [f"<tr><td>{_text(one.where)}<td>{_text(one.sentence)}" for one in findings if one.name == name]
    more = f'<p class="muted">and {count - len(rows):,} more' if count > len(rows) else ""
    return (
        f'<section class="card"><h2>{_text(name)}: {count:,}</h2><p>{_text(MEANINGS[name])}'
        f"<table><tr><th>session<th>what{''.join(rows)}</table>{more}</section>"
    )


def _settings(report: AuditReport) -> str:
    if report.settings is None:
        return '<p class="muted">The engine\'s settings could not be read.'
    rows = [
        f"<tr><td>{_text(one.level)}<td>{_text(one.sentence)}<td>{_text('; '.join(one.procedure))}"
        for one in report.settings.findings
    ]
    return (
        '<section class="card"><h2>Settings</h2><p>What the engine would lose from now on, as '
        f"<code>recollect doctor</code> says.<table><tr><th>level<th>what<th>steps{''.join(rows)}</table></section>"
    )


def _text(text: str) -> str:
    return escape(printable(text))
