"""`barnabas cluster migrate`: moves the metadata of a single node to ZooKeeper, so that other brokers can join it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.shared.exit_codes import FAILED, UNREACHABLE
from barnabas.cli.shared.group import json_option
from barnabas.cli.shared.output import CommandFailed, show_json
from barnabas.cli.shared.progress import progress_bar

if TYPE_CHECKING:
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.coordination.writing.migration import Migrated


@click.command(
    epilog="""\b
Examples:
  barnabas cluster migrate server.properties --zookeeper zk1:2181,zk2:2181,zk3:2181/barnabas
  barnabas cluster migrate --log-dirs ./barnabas-data --zookeeper localhost:2181/barnabas
"""
)
@click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--log-dirs", metavar="DIRECTORIES", help="The broker's log directories, if no file names them."
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,...][/CHROOT]",
    help="The ensemble to move to, and the node there that is to hold the cluster. It must be empty."
    "  [default: zookeeper.connect of the file]",
)
@json_option
def migrate(properties: Path | None, log_dirs: str | None, zookeeper: str | None, as_json: bool) -> None:
    """Move the metadata of a single node to ZooKeeper, so that other brokers can join it.

    Stop the broker first. Topics with their ids, settings, quotas, users and producer ids move; the records stay where
    they are. Afterwards start the broker with the same log directories and zookeeper.connect. A migration that was
    interrupted can be repeated.
    """
    from barnabas.config.broker_config import BrokerConfig
    from barnabas.config.properties import load_properties
    from barnabas.coordination.store.contract import StoreError, StoreInUse, StoreUnavailable

    named = load_properties(properties) if properties is not None else {}
    if log_dirs is not None:
        named["log.dirs"] = log_dirs
    if zookeeper is not None:
        named["zookeeper.connect"] = zookeeper
    if not named.get("zookeeper.connect"):
        raise click.UsageError(
            "Name the ensemble: --zookeeper HOST:PORT[/CHROOT], or zookeeper.connect in the file"
        )
    # The error says which ensemble does not answer.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    config = BrokerConfig(named)
    directories = [os.path.abspath(directory) for directory in config.log_dirs]
    try:
        done = asyncio.run(_migrate(config, named["zookeeper.connect"], directories))
    except StoreInUse as error:
        raise CommandFailed(f"{error}. Stop the broker first") from error
    except StoreError as error:
        exit_code = UNREACHABLE if isinstance(error, StoreUnavailable) else FAILED
        raise CommandFailed(str(error), exit_code) from error
    _report(done, named["zookeeper.connect"], as_json=as_json)


async def _migrate(config: BrokerConfig, connect: str, directories: Sequence[str]) -> Migrated:
    from barnabas.clock import SystemClock
    from barnabas.coordination.store.contract import StoreUnavailable
    from barnabas.coordination.store.embedded import EmbeddedStore
    from barnabas.coordination.store.moved import holds_embedded_store, mark_moved, moved_to
    from barnabas.coordination.writing.migration import migrate, read_contents
    from barnabas.log.file_system import DiskFileSystem
    from barnabas.server.zookeeper import zookeeper_store

    fs = DiskFileSystem()
    if not holds_embedded_store(fs, directories):
        raise CommandFailed(
            f"there is no single node in {', '.join(directories)}: name the log directories that it uses"
        )
    earlier = moved_to(fs, directories)
    if earlier not in (None, connect):
        raise CommandFailed(f"the metadata of {', '.join(directories)} has moved to {earlier} already")
    source = await EmbeddedStore.open(directories, clock=SystemClock(), fs=fs)
    try:
        if source.may_have_lost:
            raise StoreUnavailable(
                "the store is damaged, and may have lost changes: start the broker once and look at its log before you"
                " move it"
            )
        contents = await read_contents(await source.connect())
        target = await zookeeper_store(config).connect()
        try:
            with progress_bar("nodes copied", len(contents.nodes), unit="nodes") as on_copied:
                return await migrate(
                    contents, target, lambda: mark_moved(fs, directories, connect), on_copied
                )
        finally:
            await target.close()
    finally:
        await source.close()


def _report(done: Migrated, connect: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"cluster_id": done.cluster_id, "topics": done.topics, "nodes": done.nodes})
        return
    topics = "1 topic" if done.topics == 1 else f"{done.topics} topics"
    click.echo(f"Cluster {done.cluster_id} with {topics} is in ZooKeeper now ({done.nodes} nodes).")
    click.echo(f"Start the broker with zookeeper.connect={connect}; its records stay where they are.")
