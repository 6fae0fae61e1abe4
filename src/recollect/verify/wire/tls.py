"""TLS as an address asks for it, in redis-py's words: ``rediss://host?ssl_ca_certs=FILE``."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_NEEDED = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True)
class TlsOptions:
    """Without any: the system's certificates, and the server must show one for its name."""

    ca_certs: str | None = None
    ca_path: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = field(default=None, repr=False)
    cert_reqs: str = "required"
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context()
        needed = _NEEDED.get(self.cert_reqs.lower(), ssl.CERT_REQUIRED)
        made.check_hostname = self.check_hostname and needed is not ssl.CERT_NONE
        made.verify_mode = needed
        if self.ca_certs or self.ca_path:
            made.load_verify_locations(self.ca_certs, self.ca_path)
        if self.certfile:
            made.load_cert_chain(self.certfile, self.keyfile, self.password)
        return made


def tls_options(query: Mapping[str, Sequence[str]]) -> TlsOptions:
    """From the options of an address."""
    given = {name.removeprefix("ssl_"): values[-1] for name, values in query.items() if name[:4] == "ssl_"}
    return TlsOptions(
        ca_certs=given.get("ca_certs"),
        ca_path=given.get("ca_path"),
        certfile=given.get("certfile"),
        keyfile=given.get("keyfile"),
        password=given.get("password"),
        cert_reqs=given.get("cert_reqs", "required"),
        check_hostname=given.get("check_hostname", "true").lower() not in ("0", "f", "false", "n", "no"),
    )
