"""The page: one file without a build step. Its script and style are allowed by hash, so nothing else runs."""

import base64
import hashlib
import re
from importlib.resources import files

HTML = files("recollect.chat").joinpath("page.html").read_text(encoding="utf-8")


def _hashes(tag: str) -> str:
    bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", HTML, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


_COMMON = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

HEADERS = {
    **_COMMON,
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hashes('script')}; style-src {_hashes('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}

PLAIN_HEADERS = {
    **_COMMON,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
