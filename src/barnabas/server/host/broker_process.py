"""A broker of a host with several: its store is in another process, and it ends with the supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.store.contract import StoreEngine
from barnabas.coordination.store.socket_store import SocketStore
from barnabas.net.busy_poll import new_event_loop
from barnabas.server.environment import Environment
from barnabas.server.host.plan import Ports
from barnabas.server.server import Server
from barnabas.server.settled_memory import SettledMemory

if TYPE_CHECKING:
    from barnabas.security.new_users import NewUser

log = logging.getLogger("barnabas.server")

# For the end of a broker whose supervisor was killed. The next supervisor waits for its directories.
ORPHAN_STOP_S: Final = 45.0


def run_broker(
    config: BrokerConfig,
    door: socket.socket,
    lifeline: int,
    on_ready: Callable[[Ports], None],
    new_users: Sequence[NewUser],
) -> None:
    """Runs until SIGTERM or the end of the lifeline."""

    async def open_store(
        environment: Environment, config: BrokerConfig, directories: Sequence[str], losses: Collection[str]
    ) -> StoreEngine:
        return SocketStore(door, session_timeout_ms=config.zookeeper_session_timeout_ms)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = Server(config, Environment(open_store=open_store), new_users=new_users)
        is_ready = False

        def on_lifeline() -> None:
            loop.remove_reader(lifeline)
            log.error("The supervisor has ended. The broker stops")
            if not is_ready:
                # It may wait for a store that is not there any more, and has promised nothing yet.
                os._exit(1)
            loop.call_later(ORPHAN_STOP_S, os._exit, 1)
            server.stop_alone()

        server.watch_signals([signal.SIGTERM])
        loop.add_reader(lifeline, on_lifeline)
        await server.start()
        is_ready = True
        SettledMemory(server.log_count).settle()
        on_ready(Ports(server.ports, server.metrics_port))
        await server.run_until_signal()

    with asyncio.Runner(loop_factory=partial(new_event_loop, config.barnabas_busy_poll_us)) as runner:
        runner.run(run())
