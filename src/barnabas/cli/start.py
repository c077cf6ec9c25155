"""`barnabas start`: a broker in the foreground."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import time
from functools import partial

import click

from barnabas.cli.broker_logs import FORMATTERS, LEVEL_NAMES, log_to_stderr

_LOADED_S = time.monotonic()
# Requests leave no garbage that only a search finds, or little. A search through all objects of large requests would
# stop the loop for tens of milliseconds, and Python's own thresholds would have it often.
GARBAGE_THRESHOLDS = (10_000, 50, 100)


@click.command(
    epilog="""\b
Examples:
  barnabas start
  barnabas start server.properties --override log.dirs=/var/lib/barnabas
  barnabas start --metrics-port 9404 --log-format json
  barnabas start --override listeners=PLAINTEXT://0.0.0.0:9092 --override advertised.listeners=PLAINTEXT://db1:9092
"""
)
@click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set one of Apache Kafka's broker settings, whatever the file says. May be given several times.",
)
@click.option(
    "--supervisor-fd",
    type=int,
    hidden=True,
    help="An inherited, connected socket: the broker reports on it when it is ready, and its ports. The broker stops"
    " when the other end closes the socket.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus at http://HOST:PORT/metrics, and /health; 0 chooses a free port. The same as"
    " --override barnabas.metrics.port=PORT.",
)
@click.option(
    "--log-format",
    type=click.Choice(tuple(FORMATTERS)),
    default="text",
    show_default=True,
    help="Write the log as lines for people, or as one JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVEL_NAMES, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Log events of this level and above. Clients may change the levels of a running broker (resource type"
    " BROKER_LOGGER), as in Apache Kafka.",
)
@click.option("-v", "--verbose", count=True, help="Log also what happens to segments; -vv logs everything.")
def start(
    properties: str | None,
    overrides: tuple[str, ...],
    supervisor_fd: int | None,
    metrics_port: int | None,
    log_format: str,
    log_level: str,
    verbose: int,
) -> None:
    """Run a broker until it is stopped (Ctrl-C or SIGTERM).

    PROPERTIES is a server.properties file as for Apache Kafka. Without one the broker listens on port 9092 of this
    machine and keeps its data in ./barnabas-data.
    """
    # Modules are no garbage: to look for some while they are loaded takes a tenth of the time.
    gc.disable()
    from barnabas.config.broker_config import (
        BrokerConfig,
        parse_overrides,
        unknown_settings,
        warnings_about,
    )
    from barnabas.config.properties import load_properties
    from barnabas.net.busy_poll import new_event_loop
    from barnabas.server.server import Server

    gc.enable()
    log_to_stderr(form=log_format, level=log_level, verbose=verbose)
    log = logging.getLogger("barnabas")
    static = load_properties(properties) if properties is not None else {}
    overriding = parse_overrides(overrides)
    unknown = unknown_settings(overriding)
    if unknown:
        # In a file it may be for a plug-in; on the command line it is a typing error.
        raise click.BadParameter("; ".join(unknown), param_hint="--override")
    if metrics_port is not None:
        overriding["barnabas.metrics.port"] = str(metrics_port)
    for source, settings in ((properties, static), ("--override", overriding)):
        for warning in warnings_about(settings):
            log.warning("%s: %s", source, warning)
    config = BrokerConfig({**static, **overriding})
    _limit_log(config.barnabas_log_lines_per_second)

    async def run() -> None:
        server = Server(config)
        server.watch_signals()
        await server.start()
        # The objects that exist by now stay. A search through them for garbage, 20 objects per partition, would stop
        # the loop.
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        log.info("Ready after %.2f s", _running_s())
        if supervisor_fd is not None:
            _report_to(supervisor_fd, server.ports)
        await server.run_until_signal()

    with asyncio.Runner(loop_factory=partial(new_event_loop, config.barnabas_busy_poll_us)) as runner:
        runner.run(run())


def _report_to(supervisor_fd: int, ports: dict[str, int]) -> None:
    """Reports to the parent process that the broker is ready; stops the broker when that process ends."""
    supervisor = socket.socket(fileno=supervisor_fd)
    supervisor.sendall(json.dumps({"ports": ports}).encode())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # The parent never sends anything: a readable socket means its end.
        loop.remove_reader(supervisor)
        supervisor.close()
        signal.raise_signal(signal.SIGTERM)

    loop.add_reader(supervisor, stop)


def _running_s() -> float:
    """Seconds since this process started, including the start of Python if the system reports it."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _LOADED_S
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _limit_log(lines_per_second: int) -> None:
    """Log lines that clients can cause must not fill a disk."""
    from barnabas.primitives.log_limit import LogLimit

    for handler in logging.root.handlers:
        handler.addFilter(LogLimit(lines_per_second, time.monotonic))
