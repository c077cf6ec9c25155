"""DeleteRecords, versions 0 to 2: lets go of the records before an offset; -1 stands for the high watermark.

The answer waits until all replicas have followed, or `timeout_ms` is over. Topics whose cleanup policy does not
include `delete` keep their records, and so do those that the broker writes for itself.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.replication.partition import Partition
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.broker.waiting.purgatory import DelayedOperation
from barnabas.coordination.metadata.image import INTERNAL_TOPICS
from barnabas.errors import InvalidTopicException, KafkaError, PolicyViolation, RequestTimedOut
from barnabas.protocol.messages.delete_records_request import DeleteRecordsRequest
from barnabas.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


class DelayedDeletion(DelayedOperation):
    def __init__(
        self,
        timeout_ms: int,
        parked: Parked[DeleteRecordsResponse],
        response: DeleteRecordsResponse,
        waiting: list[tuple[Partition, DeleteRecordsPartitionResult]],
    ) -> None:
        super().__init__(timeout_ms)
        self._parked = parked
        self._response = response
        self._waiting = waiting

    def try_complete(self) -> bool:
        self._waiting = [
            (partition, answer) for partition, answer in self._waiting if not _is_done(partition, answer)
        ]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        for _, answer in self._waiting:
            answer.error_code = RequestTimedOut.code
            answer.low_watermark = -1
        self._parked.answer(self._response)


def handle(
    broker: Broker, exchange: Exchange[DeleteRecordsResponse], request: DeleteRecordsRequest
) -> Answer[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    waiting = []
    for topic in request.topics:
        answers = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answers)
        for asked in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            answers.partitions.append(answer)
            try:
                if topic.name in INTERNAL_TOPICS:
                    raise InvalidTopicException(f"records of {topic.name} are deleted by the broker alone")
                partition = broker.replicas.partition(topic.name, asked.partition_index)
                if not partition.leader_log().config.delete:
                    raise PolicyViolation(f"cleanup.policy of {topic.name} does not include delete")
                answer.low_watermark = partition.delete_records(asked.offset)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            waiting.append((partition, answer))
    parked = exchange.park()
    broker.replicas.delayed.deletions.try_complete_else_watch(
        DelayedDeletion(request.timeout_ms, parked, response, waiting),
        [partition.topic_partition for partition, _ in waiting],
    )
    return parked


HANDLER: Final = Handler(DeleteRecordsRequest, DeleteRecordsResponse, handle)


def _is_done(partition: Partition, answer: DeleteRecordsPartitionResult) -> bool:
    try:
        return partition.low_watermark() >= answer.low_watermark
    except KafkaError as error:
        answer.error_code = error.code
        answer.low_watermark = -1
        return True
