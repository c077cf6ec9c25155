"""The console of `barnabas start --console`: a separate process, which ends with the broker, or with all brokers."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import click

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import EVERY_ADDRESS, Endpoint, SecurityProtocol

log = logging.getLogger("barnabas")

PACKAGES: Final = ("starlette", "uvicorn")

# The broker's end of the socket that ties the console to it, and the process, by its pid.
_running: dict[int, tuple[socket.socket, subprocess.Popen[bytes]]] = {}


class Console(Protocol):
    """What the command line says about the console. `options` are options of `barnabas console`."""

    @property
    def port(self) -> int: ...

    @property
    def client_config(self) -> str | None: ...

    @property
    def options(self) -> Sequence[str]: ...


def check_console(config: BrokerConfig, console: Console) -> None:
    """Fails before the broker starts if the console could not."""
    missing = [each for each in PACKAGES if importlib.util.find_spec(each) is None]
    if missing:
        raise click.UsageError(f"--console needs the package {missing[0]}: pip install 'barnabas[console]'")
    if console.options:
        from barnabas.cli.console import console as command

        command.make_context("barnabas console", list(console.options)).close()
    if console.client_config is None and _plain_endpoint(config) is None:
        raise click.UsageError(
            "--console cannot connect: no listener is PLAINTEXT. Use --console-client-config FILE with client settings."
        )


def start_console(
    config: BrokerConfig,
    brokers: Sequence[Mapping[str, int]],
    metrics_ports: Sequence[int],
    console: Console,
) -> None:
    """`brokers` has the ports of each broker by listener; a broker without metrics has no port for them."""
    client_config = console.client_config
    endpoint = (None if client_config else _plain_endpoint(config)) or config.endpoints[0]
    host = "127.0.0.1" if endpoint.host in EVERY_ADDRESS else endpoint.host
    shown = f"[{host}]" if ":" in host else host
    address = ",".join(f"{shown}:{ports[endpoint.listener_name]}" for ports in brokers)
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "barnabas", "console", *console.options),
                *("--bootstrap", address, "--port", str(console.port)),
                *(word for url in _metrics_urls(config, metrics_ports) for word in ("--metrics", url)),
                *(("--client-config", client_config) if client_config else ()),
                *("--supervisor-fd", str(theirs.fileno())),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    _running[process.pid] = (ours, process)
    log.info("Starting the console for %s on port %d", address, console.port)


def _metrics_urls(config: BrokerConfig, ports: Sequence[int]) -> list[str]:
    """None if the metrics need a password or a certificate, which the console does not have."""
    if (
        config.barnabas_metrics_credentials is not None
        or config.barnabas_metrics_keystore_location is not None
    ):
        return []
    host = config.barnabas_metrics_host
    host = "127.0.0.1" if host in EVERY_ADDRESS else host
    return [f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics" for port in ports if port > 0]


def watch_console(is_stopping: Callable[[], bool]) -> None:
    """For a process with an event loop: logs the end of the console, unless the broker ends too."""
    loop = asyncio.get_running_loop()
    for pid, (ours, process) in _running.items():

        def on_end(
            pid: int = pid, ours: socket.socket = ours, process: subprocess.Popen[bytes] = process
        ) -> None:
            # The console never sends anything: a readable socket means its end.
            loop.remove_reader(ours)
            if not is_stopping():
                note_end(pid, process.poll())

        loop.add_reader(ours, on_end)


def note_end(pid: int, code: int | None) -> None:
    """`code` is the exit code, negative for a signal; None if it is not known yet. Other processes do not count."""
    if pid not in _running:
        return
    ours, process = _running.pop(pid)
    ours.close()
    process.returncode = code
    how = "" if code is None else f", killed by signal {-code}" if code < 0 else f" with exit code {code}"
    log.error("The console has ended%s. `barnabas console` starts it again; the brokers run on", how)


def _plain_endpoint(config: BrokerConfig) -> Endpoint | None:
    plain = [each for each in config.endpoints if each.security_protocol is SecurityProtocol.PLAINTEXT]
    return plain[0] if plain else None
