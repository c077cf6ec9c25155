"""`barnabas console`: a web console for a cluster."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.shared.output import fail
from barnabas.cli.shared.target import Target, cluster_command

if TYPE_CHECKING:
    from barnabas.console.api.call import Pipelines, Schemas
    from barnabas.console.connection import Connection
    from barnabas.console.server import Login

DEFAULT_PORT: Final = 8080
API_TIMEOUT_MS_MAX: Final = 30_000


@click.command(
    epilog="""\b
Examples:
  barnabas console
  barnabas console -b kafka1:9092 --client-config client.properties --read-only
  barnabas console --login cluster --client-config client.properties
  barnabas console --login proxy --allowed-host console.example.org --mask 'customers:$.email'
"""
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port to listen on; 0 chooses a free one.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Serve requests to this host name too, for example that of a proxy. May be given several times.",
)
@click.option("--read-only", is_flag=True, help="Refuse all changes.")
@click.option(
    "--no-local-files",
    is_flag=True,
    help="Search by fetching, also if the files of the brokers are on this machine.",
)
@click.option(
    "--login",
    type=click.Choice(["none", "proxy", "cluster"]),
    default="none",
    show_default=True,
    help="Who may use the console: everyone who reaches it; users that a proxy names; or SASL users of the cluster,"
    " with their own rights.",
)
@click.option(
    "--user-header",
    default="X-Forwarded-User",
    show_default=True,
    metavar="NAME",
    help="With --login proxy: the header in which the proxy names the user.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="With --login proxy: the address of the proxy; this machine if it is missing. May be given several times.",
)
@click.option(
    "--tls-certificate",
    type=click.Path(exists=True, dir_okay=False),
    help="Serve HTTPS: the certificate, in PEM.",
)
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False), help="The key of the certificate, in PEM."
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="TOPICS:WHAT",
    help="Hide a part of records: key, value, header.NAME, $.field or $..name. May be given several times.",
)
@click.option(
    "--schema-registry",
    envvar="BARNABAS_SCHEMA_REGISTRY",
    metavar="URL",
    help="Show keys and values in Avro, JSON Schema and Protobuf by this registry. The address may have a name and"
    " password; the variable BARNABAS_SCHEMA_REGISTRY keeps them out of the command line.",
)
@click.option(
    "--pipeline",
    "pipelines",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Show the pipeline of this file, or those of this folder. May be given several times.",
)
@click.option(
    "--metrics",
    "metrics_urls",
    multiple=True,
    metavar="URL",
    help="Plot bytes and latencies from the metrics of this broker, such as http://127.0.0.1:9404/metrics. May be given"
    " several times.",
)
@click.option(
    "--supervisor-fd", type=int, hidden=True, help="An inherited socket; the console ends when it closes."
)
@cluster_command
def console(
    target: Target,
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...],
    read_only: bool,
    no_local_files: bool,
    supervisor_fd: int | None,
    masks: tuple[str, ...],
    pipelines: tuple[Path, ...],
    schema_registry: str | None,
    metrics_urls: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    **access: Any,
) -> None:
    """Serve a web console for a cluster: topics, records, groups, transactions, metrics.

    It needs the extra `barnabas[console]`. Without --login everyone who can reach the port can use the console with the
    rights of its client settings, so it listens on this machine only, unless you name a host.
    """
    try:
        from barnabas.console.api.guard import LOOPBACK_NAMES
        from barnabas.console.search.masking import parse_masks
        from barnabas.console.server import build_app, serve
    except ModuleNotFoundError as error:
        fail(f"the console needs the package {error.name}: pip install 'barnabas[console]'")
    is_loopback = host in LOOPBACK_NAMES
    if not is_loopback and not allowed_hosts:
        fail(
            f"--host {host} makes the console reachable from other machines: name the host that it is served under,"
            " with --allowed-host NAME. Without --login, a proxy in front of it must ask for a login"
        )
    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-certificate and --tls-key go together.")
    hidden = parse_masks(masks)
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)")
    listener = _listen(host, port)
    scheme = "http" if tls_certificate is None else "https"
    address = f"{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    if target.as_json:
        click.echo(json.dumps({"bootstrap": target.bootstrap, "url": f"{scheme}://{address}/"}))
    else:
        click.echo(f"Console for {target.bootstrap} on {scheme}://{address}/", err=True)
    app = build_app(
        connection_of(target),
        allowed_hosts=[*LOOPBACK_NAMES, *allowed_hosts],
        is_read_only=read_only,
        may_read_files=not no_local_files,
        masks=hidden,
        pipelines=_watched(pipelines),
        schemas=_schemas(schema_registry),
        login=_login(access),
        metrics_urls=metrics_urls,
    )
    serve(app, listener, supervisor_fd=supervisor_fd, certificate=tls_certificate, key=tls_key)


def _watched(paths: tuple[Path, ...]) -> Pipelines | None:
    if not paths:
        return None
    from barnabas.spark.pipeline.watch import WatchedPipelines

    return WatchedPipelines(paths)


def _schemas(url: str | None) -> Schemas | None:
    if not url:
        return None
    from barnabas.console.api.schemas import SchemaView

    return SchemaView(url)


def _login(access: dict[str, Any]) -> Login:
    from barnabas.console.server import LOOPBACK_ADDRESSES, Login

    return Login(
        kind=access["login"],
        user_header=access["user_header"],
        trusted_proxies=access["trusted_proxies"] or LOOPBACK_ADDRESSES,
    )


def connection_of(target: Target) -> Connection:
    from barnabas.console.connection import Connection

    timeout_ms = min(target.timeout_ms, API_TIMEOUT_MS_MAX)
    return Connection(
        bootstrap=target.bootstrap,
        admin={
            **target.client_settings("admin", default_api_timeout_ms=timeout_ms),
            "client.id": "barnabas-console",
        },
        consumer={**target.client_settings("consumer"), "client.id": "barnabas-console"},
        producer={**target.client_settings("producer"), "client.id": "barnabas-console"},
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        fail(f"the console cannot listen on {host}:{port}: {error.strerror}; choose another --port")
    return listener
