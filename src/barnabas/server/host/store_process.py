"""The process that has the store of a host's brokers. It serves the store until it is stopped, or the supervisor ends.

Before it serves, it settles the ids of the brokers, and refuses to leave partitions behind on brokers that would not
run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.clock import SystemClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.metadata.host_brokers import settle_host_brokers
from barnabas.coordination.store.contract import Store, StoreError
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.store.moved import refuse_moved_store
from barnabas.coordination.store.socket_server import StoreServer
from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import DiskFileSystem, StorageFailure
from barnabas.log.manager.directory_check import explained, find_directories, probe
from barnabas.model import BrokerId
from barnabas.server.host.plan import directories_of
from barnabas.server.host.reconciling import reconcile

log = logging.getLogger("barnabas.server")

# Brokers that end because their supervisor was killed still close their sessions.
LAST_SESSIONS_S: Final = 30.0


def serve_store(
    config: BrokerConfig,
    door: socket.socket,
    lifeline: int,
    on_ready: Callable[[int], None],
    *,
    is_first: bool,
) -> None:
    """Runs until SIGTERM or the end of the lifeline. `on_ready` gets the id of the first broker.

    `is_first` says that no broker runs yet.
    """
    with asyncio.Runner() as runner:
        runner.run(_serve(config, door, lifeline, on_ready, is_first))


async def _serve(
    config: BrokerConfig,
    door: socket.socket,
    lifeline: int,
    on_ready: Callable[[int], None],
    is_first: bool,
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    orphaned = asyncio.Event()

    def on_lifeline() -> None:
        loop.remove_reader(lifeline)
        orphaned.set()
        stopping.set()

    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_reader(lifeline, on_lifeline)
    try:
        store = await _open(config)
    except StorageFailure as failure:
        raise explained(DiskFileSystem(), os.path.dirname(failure.path), failure) from failure
    except StoreError as error:
        raise KafkaStorageError(str(error)) from error
    try:
        first_id = await _prepared(store, config, is_first)
        server = StoreServer(store, door)
        server.start()
        on_ready(first_id)
        await stopping.wait()
        if orphaned.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_until_empty(), LAST_SESSIONS_S)
        await server.close()
    finally:
        await store.close()


async def _open(config: BrokerConfig) -> EmbeddedStore:
    fs = DiskFileSystem()
    directories = _usable(fs, directories_of(config, 0))
    refuse_moved_store(fs, directories)
    return await EmbeddedStore.open(
        directories,
        clock=SystemClock(),
        fs=fs,
        accepted_losses=frozenset(map(os.path.abspath, config.barnabas_accept_loss)),
    )


def _usable(fs: DiskFileSystem, directories: Sequence[str]) -> list[str]:
    """A broker goes on without a log directory whose disk has failed, and so does the store."""
    usable: list[str] = []
    failures: list[StorageFailure] = []
    for directory in directories:
        try:
            fs.make_dirs(directory)
            probe(fs, directory)
        except StorageFailure as failure:
            log.error("The store does not use %s: %s", directory, failure)
            failures.append(failure)
        else:
            usable.append(directory)
    if not usable:
        raise failures[0]
    return usable


async def _prepared(store: EmbeddedStore, config: BrokerConfig, is_first: bool) -> int:
    fs = DiskFileSystem()
    found = find_directories(fs, directories_of(config, 0))
    session: Store = await store.connect()
    try:
        first_id = await settle_host_brokers(
            session,
            configured=config.broker_id,
            in_directories=found.broker_id,
            count=config.barnabas_brokers,
            address=config.endpoints[0].local_address,
        )
        if is_first:
            directories = {
                BrokerId(first_id + index): directories_of(config, index)
                for index in range(config.barnabas_brokers)
            }
            await reconcile(session, fs, SystemClock(), config, directories)
        return first_id
    finally:
        await session.close()
