"""Loads what the brokers of a cluster load when they start, before the supervisor forks them.

A module that is loaded once takes its time once, and is in memory once. What only a client or a rare event needs is not
here, except for the requests of nearly every client.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

MODULES: Final = (
    # The links between the brokers.
    "barnabas.broker.coordinators.remote_markers",
    "barnabas.broker.coordinators.remote_verification",
    "barnabas.broker.metrics.controller_metrics",
    "barnabas.broker.replication.replication",
    "barnabas.broker.upkeep.control_channels",
    "barnabas.broker.upkeep.controlled_shutdown",
    "barnabas.coordination.controller.counts",
    "barnabas.coordination.writing.controller_producer_ids",
    "barnabas.peers.controller_channel",
    "barnabas.peers.versions",
    # Requests of the controller, and of nearly every client.
    "barnabas.broker.handlers.cluster.api_versions",
    "barnabas.broker.handlers.control.leader_and_isr",
    "barnabas.broker.handlers.control.update_metadata",
    "barnabas.broker.handlers.records.fetch",
    "barnabas.broker.handlers.records.produce",
    "barnabas.broker.handlers.topics.metadata",
    "barnabas.protocol.decoders",
    "barnabas.protocol.encoders",
    # Python loads it when a host name is looked up.
    "encodings.idna",
    "barnabas.server.host.store_process",
)


def preload() -> None:
    for module in MODULES:
        import_module(module)
