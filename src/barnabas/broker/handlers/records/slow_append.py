"""Appends records whose validation takes long: the worker process validates them, and the log takes the result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.requests.conversions import RequestShare
from barnabas.errors import KafkaError, RequestTimedOut, UnknownServerError
from barnabas.log.file_system import Data
from barnabas.log.partition.append import AppendInfo
from barnabas.model import TopicPartition
from barnabas.records.jobs import validate_job, validated_records

log = logging.getLogger(__name__)

# Settings seldom change, and only compressed messages of v0 depend on records written in between: see
# `append_validated`.
ATTEMPTS: Final = 5


async def append_with_worker(
    broker: Broker,
    share: RequestShare,
    target: TopicPartition,
    records: Data,
    acks: int,
    verification_guard: int,
    done: Callable[[AppendInfo | KafkaError], None],
) -> None:
    """Calls back with how it went."""
    outcome: AppendInfo | KafkaError
    try:
        outcome = await _append(broker, share, target, records, acks, verification_guard)
    except KafkaError as error:
        partition = broker.replicas.find(target)
        if partition is not None:
            partition.metrics.count_failed_produce(error, len(records))
        outcome = error
    except Exception:
        log.exception("records for %s cannot be converted", target)
        outcome = UnknownServerError("the records cannot be converted")
    done(outcome)


async def _append(
    broker: Broker,
    share: RequestShare,
    target: TopicPartition,
    records: Data,
    acks: int,
    verification_guard: int,
) -> AppendInfo:
    for _ in range(ATTEMPTS):
        partition = broker.replicas.partition(target.topic, target.partition)
        log = partition.leader_log()
        policy = log.append_policy
        result = await share.run(validate_job(records, policy, log.log_end_offset, broker.now_ms))
        validated = validated_records(result)
        # The partition, its leader and its log may have changed in the meantime.
        partition = broker.replicas.partition(target.topic, target.partition)
        info = partition.append_later(validated, policy, acks, verification_guard, len(records))
        if info is not None:
            return info
    raise RequestTimedOut(f"{target} changes too fast for records that have to be converted")
