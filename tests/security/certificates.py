"""Certificates for tests, made once per process."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from barnabas.security.dev_certificates import dev_certificates

HOSTS = ("localhost", "127.0.0.1")


@cache
def certificates() -> Mapping[str, str]:
    """PEM texts: `ca`, `server`, and the clients `ann` and `bob`."""
    return dev_certificates(HOSTS, ("ann", "bob"), datetime.datetime.now(datetime.UTC))


def other_certificates() -> Mapping[str, str]:
    """Those of another authority."""
    return dev_certificates(HOSTS, ("ann",), datetime.datetime.now(datetime.UTC))


def write_certificates(folder: Path, texts: Mapping[str, str] | None = None) -> Path:
    for name, text in (texts or certificates()).items():
        (folder / f"{name}.pem").write_text(text)
    return folder


def tls_settings_of(folder: Path, prefix: str = "") -> dict[str, str]:
    """Settings of a broker whose files are in the folder."""
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": str(folder / "server.pem"),
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.location": str(folder / "ca.pem"),
    }
