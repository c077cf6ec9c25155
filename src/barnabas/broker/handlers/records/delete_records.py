"""DeleteRecords, versions 0 to 2: deletes the records before an offset; -1 means the high watermark.

The response waits until all replicas have followed, or `timeout_ms` has passed. Records of topics whose cleanup policy
does not include `delete`, and of internal topics, cannot be deleted. Many partitions are processed in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission
from barnabas.broker.replication.partition import Partition
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.broker.waiting.purgatory import DelayedOperation
from barnabas.coordination.metadata.image import INTERNAL_TOPICS
from barnabas.errors import (
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from barnabas.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from barnabas.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.security.acls import DELETE


class _Deletion(NamedTuple):
    topic: str
    asked: DeleteRecordsPartition
    answer: DeleteRecordsPartitionResult


class _Waiting(NamedTuple):
    """A partition whose replicas have not all deleted the records."""

    partition: Partition
    answer: DeleteRecordsPartitionResult

    def is_done(self) -> bool:
        """Whether the waiting is over. The answer then has the outcome."""
        try:
            return self.partition.low_watermark() >= self.answer.low_watermark
        except KafkaError as error:
            _fail(self.answer, error.code)
            return True


class DelayedDeletion(DelayedOperation):
    def __init__(
        self,
        timeout_ms: int,
        parked: Parked[DeleteRecordsResponse],
        response: DeleteRecordsResponse,
        waiting: list[_Waiting],
    ) -> None:
        super().__init__(timeout_ms)
        self._parked = parked
        self._response = response
        self._waiting = waiting

    def try_complete(self) -> bool:
        self._waiting = [each for each in self._waiting if not each.is_done()]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        for each in self._waiting:
            _fail(each.answer, RequestTimedOut.code)
        self._parked.answer(self._response)


def handle(
    broker: Broker, exchange: Exchange[DeleteRecordsResponse], request: DeleteRecordsRequest
) -> Answer[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    deletions = []
    permission = Permission(broker, exchange, DELETE)
    for topic in request.topics:
        answers = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answers)
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            answers.partitions.append(answer)
            if topic.name not in permission:
                answer.error_code = TopicAuthorizationFailed.code
                continue
            deletions.append(_Deletion(topic.name, asked, answer))

    def await_replicas(waiting: Sequence[_Waiting | None]) -> Answer[DeleteRecordsResponse]:
        behind = [each for each in waiting if each is not None]
        if not behind:
            return response
        parked = exchange.park()
        broker.replicas.delayed.deletions.try_complete_else_watch(
            DelayedDeletion(request.timeout_ms, parked, response, behind),
            [each.partition.topic_partition for each in behind],
        )
        return parked

    return exchange.answer_in_turns(broker.turns, deletions, partial(_delete, broker), await_replicas)


HANDLER: Final = Handler(DeleteRecordsRequest, DeleteRecordsResponse, handle)


def _delete(broker: Broker, deletion: _Deletion) -> _Waiting | None:
    """The partition, if its replicas have not all deleted the records."""
    topic, asked, answer = deletion
    try:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopicException(f"only the broker deletes records of {topic}")
        partition = broker.replicas.partition(topic, asked.partition_index)
        if not partition.leader_log().config.delete:
            raise PolicyViolation(f"cleanup.policy of {topic} does not include delete")
        answer.low_watermark = partition.delete_records(asked.offset)
    except KafkaError as error:
        answer.error_code = error.code
        return None
    waiting = _Waiting(partition, answer)
    return None if waiting.is_done() else waiting


def _fail(answer: DeleteRecordsPartitionResult, code: int) -> None:
    answer.error_code = code
    answer.low_watermark = -1
