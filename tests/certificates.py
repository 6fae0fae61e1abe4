"""A key and a certificate for 127.0.0.1, and the lines of a redis.conf that serve them."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Path, Path]:
    """A key, and its certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, so there is no certificate to serve")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    return key, certificate


def served(key: Path, certificate: Path) -> str:
    """Without a port: the kit chooses an engine's ports, whatever its configuration says."""
    return (
        f"tls-cert-file {certificate}\ntls-key-file {key}\ntls-ca-cert-file {certificate}\n"
        "tls-auth-clients no\n"
    )
