"""`barnabas start`: a broker in the foreground."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.broker_logs import FORMATTERS, LEVEL_NAMES, log_to_stderr, name_process

if TYPE_CHECKING:
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.security.new_users import NewUser

_LOADED_S = time.monotonic()
LOOPBACK = "PLAINTEXT://localhost:9092"
# Settings that say who is to connect.
_OPENING = frozenset({"listeners", "advertised.listeners", "zookeeper.connect"})


class Console(NamedTuple):
    """The web console that runs beside the broker."""

    port: int
    client_config: str | None
    options: tuple[str, ...] = ()


class BrokerCount(click.ParamType[int]):
    """A number of brokers, or `auto`."""

    name = "number"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        from barnabas.config.broker_settings import BROKERS_MAX, broker_count
        from barnabas.config.definition import InvalidSetting

        try:
            return broker_count(str(value))
        except InvalidSetting:
            self.fail(f"{value!r} is neither a number from 1 to {BROKERS_MAX} nor auto.", parameter, context)


@click.command(
    epilog="""\b
Examples:
  barnabas start
  barnabas start server.properties --override log.dirs=/var/lib/barnabas
  barnabas start --brokers auto
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
    "--add-scram",
    "add_scram",
    multiple=True,
    metavar="MECHANISM=[name=USER]|@FILE",
    help="Create a user with a password, unless it has one: the first user of a broker whose listeners all ask for a"
    " password. MECHANISM is SCRAM-SHA-256 or SCRAM-SHA-512. The password is asked for, or comes from a file with lines"
    " such as SCRAM-SHA-512=[name=USER,password=PASSWORD]; @- is the standard input. The argument may have the password"
    " too, but then other users of the machine can see it. May be given several times.",
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
    "--brokers",
    type=BrokerCount(),
    metavar="N|auto",
    help="Run N brokers, to use N cores; auto is the number of cores. They share their metadata without a ZooKeeper."
    " Each has the port after that of the last one, and directories of its own in barnabas-brokers/ below log.dirs. The"
    " same as --override barnabas.brokers=N.",
)
@click.option(
    "--console",
    "console_port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the web console at http://127.0.0.1:PORT/, in a process of its own (see `barnabas console`).",
)
@click.option(
    "--console-client-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Client settings for the console, if it cannot connect without security.",
)
@click.option(
    "--console-option",
    "console_options",
    multiple=True,
    metavar="OPTION",
    help="An option of `barnabas console`, such as --console-option=--read-only or"
    " --console-option='--mask=customers:$.email'. May be given several times.",
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
    add_scram: tuple[str, ...],
    supervisor_fd: int | None,
    metrics_port: int | None,
    brokers: int | None,
    console_port: int | None,
    console_client_config: str | None,
    console_options: tuple[str, ...],
    log_format: str,
    log_level: str,
    verbose: int,
) -> None:
    """Run a broker, or several on one host, until it is stopped (Ctrl-C or SIGTERM).

    PROPERTIES is a server.properties file as for Apache Kafka. Without one the broker listens on localhost:9092, so
    that only this machine can connect, and keeps its data in ./barnabas-data.
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
    # A broker that nobody has configured is for its own machine only.
    is_plain = properties is None and overriding.keys().isdisjoint(_OPENING)
    if is_plain:
        overriding["listeners"] = LOOPBACK
    if brokers is not None:
        overriding["barnabas.brokers"] = str(brokers)
    for source, settings in ((properties, static), ("--override", overriding)):
        for warning in warnings_about(settings):
            log.warning("%s: %s", source, warning)
    config = BrokerConfig({**static, **overriding})
    _limit_log(config.barnabas_log_lines_per_second)
    new_users = _new_users(add_scram)
    console = None if console_port is None else Console(console_port, console_client_config, console_options)
    if is_plain:
        log.info(
            "Only this machine can connect, because no listeners are set. To open the broker to others:"
            " --override listeners=PLAINTEXT://0.0.0.0:9092 (without a password), or see docs/SECURITY.md"
        )
    if console is not None:
        from barnabas.cli.start_console import check_console

        check_console(config, console)
    if config.barnabas_brokers > 1:
        _run_host(config, supervisor_fd, new_users, console)
    else:
        _run_broker(config, supervisor_fd, new_users, console)


def _run_broker(
    config: BrokerConfig, supervisor_fd: int | None, new_users: list[NewUser], console: Console | None
) -> None:
    from barnabas.net.busy_poll import new_event_loop
    from barnabas.server.server import Server
    from barnabas.server.settled_memory import SettledMemory

    gc.enable()

    async def run() -> None:
        server = Server(config, new_users=new_users)
        server.watch_signals()
        await server.start()
        SettledMemory(server.log_count).settle()
        logging.getLogger("barnabas").info("Ready after %.2f s", _running_s())
        if supervisor_fd is not None:
            _report_to(supervisor_fd, server.ports)
        if console is not None:
            from barnabas.cli.start_console import start_console, watch_console

            start_console(config, [server.ports], [server.metrics_port], console)
            watch_console(lambda: server.is_stopping)
        await server.run_until_signal()

    with asyncio.Runner(loop_factory=partial(new_event_loop, config.barnabas_busy_poll_us)) as runner:
        runner.run(run())


def _new_users(texts: tuple[str, ...]) -> list[NewUser]:
    if not texts:
        return []
    from barnabas.security.new_users import new_users

    return new_users(texts, _ask_for_password)


def _ask_for_password(user: str) -> str:
    if not sys.stdin.isatty():
        from barnabas.errors import InvalidConfig

        raise InvalidConfig(
            f"--add-scram: there is no terminal to ask for the password of {user}. Use --add-scram @FILE, with lines"
            " such as SCRAM-SHA-512=[name=USER,password=PASSWORD]"
        )
    password: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _run_host(
    config: BrokerConfig, supervisor_fd: int | None, new_users: list[NewUser], console: Console | None
) -> None:
    """Several brokers, each a process; see `server/host/supervisor.py`."""
    from barnabas.server.host.broker_process import run_broker
    from barnabas.server.host.parent import Parent
    from barnabas.server.host.preload import preload
    from barnabas.server.host.process import Report
    from barnabas.server.host.supervisor import Supervisor

    preload()
    name_process("supervisor")
    is_first = True

    def on_ready(report: Report) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            count = config.barnabas_brokers
            logging.getLogger("barnabas").info("Ready after %.2f s: %d brokers", _running_s(), count)
            if console is not None:
                from barnabas.cli.start_console import start_console

                ports = [each["ports"] for each in report["brokers"]]
                metrics_ports = [each["metrics_port"] for each in report["brokers"]]
                start_console(config, ports, metrics_ports, console)

    def on_other_end(pid: int, code: int) -> None:
        if console is not None:
            from barnabas.cli.start_console import note_end

            note_end(pid, code)

    supervisor = Supervisor(
        config,
        partial(run_broker, new_users=new_users),
        name_process,
        on_ready,
        on_other_end,
        None if supervisor_fd is None else Parent(socket.socket(fileno=supervisor_fd)),
    )
    raise SystemExit(supervisor.run())


def _report_to(supervisor_fd: int, ports: dict[str, int]) -> None:
    """Reports to the parent process that the broker is ready; stops the broker when that process ends."""
    supervisor = socket.socket(fileno=supervisor_fd)
    supervisor.sendall(json.dumps({"ports": ports}).encode() + b"\n")
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
