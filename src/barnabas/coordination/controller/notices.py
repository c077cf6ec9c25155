"""Notices of brokers in the store: log directories that failed, in-sync replicas that old releases have changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.coordination.controller.broker_requests import ask_for_failed_replicas
from barnabas.coordination.controller.isr_changes import take_in_isr_changes
from barnabas.coordination.controller.state import Change, ControllerState, commit
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    LOG_DIR_EVENT_PREFIX,
    decode_isr_change,
    decode_log_dir_event,
)
from barnabas.coordination.store.contract import Delete
from barnabas.model import BrokerId, TopicPartition

log = logging.getLogger(__name__)


def take_in(state: ControllerState, nodes: Sequence[tuple[str, bytes]]) -> Change[None]:
    """Does what the notices ask for, and removes them."""
    brokers: list[BrokerId] = []
    partitions: list[TopicPartition] = []
    for path, data in nodes:
        try:
            if path.startswith(LOG_DIR_EVENT_PREFIX):
                brokers.append(decode_log_dir_event(path, data))
            else:
                partitions += decode_isr_change(path, data)
        except MalformedNode as error:
            log.error("A notice is ignored and removed: %s", error)
    yield from ask_for_failed_replicas(state, brokers)
    yield from take_in_isr_changes(state, partitions)
    yield from commit(state, [Delete(path) for path, _ in nodes], leaves_full=True)
