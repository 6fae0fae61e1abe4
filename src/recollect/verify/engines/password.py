"""Passwords of the engines that we start: random, one for each, and never printed.

Anybody with an account on this machine can reach a loopback port. A PostgreSQL that trusts them runs their programs as
the server's user, and a Redis that accepts every command writes files wherever they like.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets

SCRAM_ITERATIONS = 4096


def new_password() -> str:
    """Needs no quoting anywhere: not in an address, a configuration file or a password file."""
    return secrets.token_urlsafe(24)


def scram_verifier(password: str, iterations: int = SCRAM_ITERATIONS) -> str:
    """What PostgreSQL stores for a password (RFC 5803): enough to check it, but not to recover it. Fewer iterations
    make it quicker to log in; only a password that could be guessed needs many."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt_64, stored_64, server_64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${iterations}:{salt_64}${stored_64}:{server_64}"
