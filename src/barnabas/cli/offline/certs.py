"""`barnabas certs`: certificates for development."""

from __future__ import annotations

import datetime
import os
import socket
from pathlib import Path
from typing import Final

import click

from barnabas.cli.shared.output import fail

KEY_MODE: Final = 0o600
DAYS_MAX: Final = 825


@click.group()
def certs() -> None:
    """Create certificates for development."""


@certs.command(
    epilog="""\b
Examples:
  barnabas certs dev
  barnabas certs dev --directory certs --host kafka.test --user ann"""
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("certs"),
    show_default=True,
    help="Where to write the files.",
)
@click.option(
    "--host", "hosts", multiple=True, help="Another name or address of the broker. May be repeated."
)
@click.option("--user", "users", multiple=True, help="A client with a certificate. May be repeated.")
@click.option(
    "--days", type=click.IntRange(1, DAYS_MAX), default=365, show_default=True, help="How long they last."
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def dev(directory: Path, hosts: tuple[str, ...], users: tuple[str, ...], days: int, force: bool) -> None:
    """Create certificates for a broker on this machine and its clients.

    A certificate authority signs them. The files are ca.pem, server.pem and USER.pem. They are for development only:
    keep your own authority for production.
    """
    from barnabas.security.dev_certificates import CA, dev_certificates

    for user in users:
        if not user or user in ("ca", "server") or "/" in user or user.startswith("."):
            fail(f"{user!r} cannot be the name of a file")
    names = list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts]))
    texts = dev_certificates(names, users, datetime.datetime.now(datetime.UTC), days=days)
    directory.mkdir(parents=True, exist_ok=True)
    paths = {name: directory / f"{name}.pem" for name in texts}
    existing = [str(path) for path in paths.values() if path.exists()]
    if existing and not force:
        fail(f"{', '.join(existing)} exists. Use --force to replace it, or another --directory")
    for name, text in texts.items():
        mode = 0o644 if name == CA else KEY_MODE
        paths[name].unlink(missing_ok=True)
        with os.fdopen(os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
        click.echo(f"wrote {paths[name]}")
    server, ca = paths["server"].absolute(), paths[CA].absolute()
    click.echo(
        f"\nFor a broker:\n  listeners=SSL://localhost:9093\n  ssl.keystore.type=PEM\n"
        f"  ssl.keystore.location={server}\n\nFor a client:\n  security.protocol=SSL\n  ssl.truststore.type=PEM\n"
        f"  ssl.truststore.location={ca}"
    )
