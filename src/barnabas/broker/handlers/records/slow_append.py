"""Appends records whose validation takes long: the worker process validates them, and the log takes the result."""

from __future__ import annotations

import logging
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.requests.conversions import RequestShare
from barnabas.errors import KafkaError, RequestTimedOut, UnknownServerError
from barnabas.log.file_system import Data
from barnabas.log.partition.append import AppendInfo
from barnabas.model import TopicPartition
from barnabas.records.jobs import validate_job, validated_records

log = logging.getLogger(__name__)

# Settings seldom change, and only compressed messages of v0 depend on other appends: see `append_validated`.
ATTEMPTS: Final = 5


async def append_with_worker(
    broker: Broker,
    share: RequestShare,
    target: TopicPartition,
    records: Data,
    acks: int,
    verification_guard: int,
) -> AppendInfo:
    try:
        for _ in range(ATTEMPTS):
            partition = broker.replicas.partition(target.topic, target.partition)
            partition_log = partition.leader_log()
            policy = partition_log.append_policy
            job = validate_job(records, policy, partition_log.log_end_offset, broker.now_ms)
            validated = validated_records(await share.run(job))
            # The partition, its leader and its log may have changed in the meantime.
            partition = broker.replicas.partition(target.topic, target.partition)
            info = partition.append_later(validated, policy, acks, verification_guard, len(records))
            if info is not None:
                return info
        raise RequestTimedOut(f"{target} changes too fast for records that have to be converted")
    except KafkaError as error:
        found = broker.replicas.find(target)
        if found is not None:
            found.metrics.count_failed_produce(error, len(records))
        raise
    except Exception as error:
        log.exception("records for %s cannot be converted", target)
        raise UnknownServerError("the records cannot be converted") from error
