"""Produce, versions 0 to 13: appends records to partitions.

- acks 0 wants no answer: an error closes the connection, which is how such a client finds out. acks 1 is answered when
  the leader has written, acks -1 when all replicas in sync have, or `timeout_ms` is over. Others are refused.
- Versions 0 to 2 carry message sets of the old formats; from 3 on it is one batch of v2 a partition; zstd from 7.
- Records of a transaction (version 3 on) are written when its coordinator has been asked about their partitions; from
  version 11 on the client knows TRANSACTION_ABORTABLE, from 12 on the coordinator adds the partitions by itself.
- Internal topics are for the broker alone (and for who calls itself `__admin_client`).
- From version 8 the answer tells which records were at fault, from 10 who leads now, from 13 topics go by id.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.exchange import Exchange
from barnabas.broker.partition import ACKS_ALL, Partition
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.quotas import PRODUCER_BYTE_RATE
from barnabas.broker.transaction_verification import FIRST_PRODUCE_WITH_IDS, Verified, verify_produce
from barnabas.coordination.image import INTERNAL_TOPICS
from barnabas.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from barnabas.log.producer_state import NO_GUARD
from barnabas.model import TopicPartition
from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest
from barnabas.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.layout import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    CompressionType,
)
from barnabas.records.policy import AppendOrigin
from barnabas.records.rejection import RejectedRecords, RejectedTimestamps

# Who calls itself so may write where only the broker writes, as in Kafka.
ADMIN_CLIENT_ID: Final = "__admin_client"

_ACKS: Final = frozenset({-1, 0, 1})
_FIRST_VERSION_WITH_BATCHES: Final = 3
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_LEADER: Final = 10


class WaitingPartition:
    """A partition whose records are written here and not yet by all replicas in sync."""

    __slots__ = ("answer", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int, answer: PartitionProduceResponse) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.answer = answer

    def is_done(self) -> bool:
        """Whether there is nothing more to wait for; the answer then says how it ended."""
        try:
            log = self.partition.leader_log()
        except KafkaError as error:
            _fail(self.answer, error)
            return True
        if log.high_watermark < self.required_offset:
            return False
        if len(self.partition.in_sync) < min(log.config.min_insync_replicas, len(self.partition.replicas)):
            _fail(
                self.answer,
                NotEnoughReplicasAfterAppend("replicas fell out of sync while the records were copied"),
            )
        return True


class DelayedProduce(DelayedOperation):
    def __init__(
        self, timeout_ms: int, exchange: Exchange, response: ProduceResponse, waiting: list[WaitingPartition]
    ) -> None:
        super().__init__(timeout_ms)
        self._exchange = exchange
        self._response = response
        self._waiting = waiting

    def try_complete(self) -> bool:
        self._waiting = [each for each in self._waiting if not each.is_done()]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        for each in self._waiting:
            _fail(each.answer, RequestTimedOut("the replicas in sync did not all write the records in time"))
        self._exchange.respond(self._response)


def handle(broker: Broker, exchange: Exchange, request: ProduceRequest) -> ProduceResponse | None:
    if request.transactional_id is None:
        return _append(broker, exchange, request, None)
    verify_produce(broker, exchange.version, request, partial(_append_verified, broker, exchange, request))
    return None


def _append_verified(broker: Broker, exchange: Exchange, request: ProduceRequest, verified: Verified) -> None:
    response = _append(broker, exchange, request, verified)
    if response is not None:
        exchange.respond(response)


def _append(
    broker: Broker, exchange: Exchange, request: ProduceRequest, verified: Verified | None
) -> ProduceResponse | None:
    """Without an answer if that comes later, or not at all. What is verified is a request with a transactional id."""
    acks = request.acks
    response = ProduceResponse()
    waiting: list[WaitingPartition] = []
    failure: KafkaError | None = None
    by_id = exchange.version >= FIRST_PRODUCE_WITH_IDS
    size_bytes = 0
    for topic in request.topic_data:
        name = broker.image.topic_names.get(topic.topic_id) if by_id else topic.name
        answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answers)
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            answers.partition_responses.append(answer)
            try:
                if acks not in _ACKS:
                    raise InvalidRequiredAcks(f"acks is {acks}, and can be -1, 0 or 1")
                if name is None:
                    raise UnknownTopicId("there is no topic with this id")
                if name in INTERNAL_TOPICS and exchange.client_id != ADMIN_CLIENT_ID:
                    raise InvalidTopicException(f"{name} is written to by the broker alone")
                records = _checked_records(data, exchange.version, verified is not None)
                size_bytes += len(records)
                partition = broker.replicas.partition(name, data.index)
                guard = NO_GUARD if verified is None else verified.guard(TopicPartition(name, data.index))
                info = partition.append(records, acks, AppendOrigin.CLIENT, guard)
            except KafkaError as error:
                failure = error
                _fail(answer, error)
                if exchange.version >= _FIRST_VERSION_WITH_LEADER and isinstance(error, NotLeaderOrFollower):
                    _tell_leader(broker, exchange, name or "", answer, response)
                continue
            answer.base_offset = info.first_offset
            answer.log_append_time_ms = info.log_append_time
            answer.log_start_offset = info.log_start_offset
            if acks == ACKS_ALL:
                pending = WaitingPartition(partition, info.last_offset + 1, answer)
                if not pending.is_done():
                    waiting.append(pending)
    if broker.quotas.has(PRODUCER_BYTE_RATE):
        user = exchange.session.user
        exchange.throttle(
            broker.quotas.record(PRODUCER_BYTE_RATE, user, exchange.client_id, size_bytes, broker.now_ms)
        )
    if acks == 0:
        if failure is not None:
            exchange.figures.errors.value += 1
            exchange.connection.close(f"Produce without acknowledgement failed: {failure.name}: {failure}")
        else:
            exchange.respond_nothing()
        return None
    if not waiting:
        return response
    broker.replicas.waiting_produces.try_complete_else_watch(
        DelayedProduce(request.timeout_ms, exchange, response, waiting),
        [each.partition.topic_partition for each in waiting],
    )
    return None


def _checked_records(data: PartitionProduceData, version: int, is_transactional: bool) -> Buffer:
    """What the request as a whole says about records; what the topic says is up to the log."""
    records = data.records
    assert not isinstance(records, FileSlice)
    if not records:
        raise InvalidRecord("the partition comes without records")
    if version >= _FIRST_VERSION_WITH_BATCHES and len(records) > MAGIC_POSITION:
        if records[MAGIC_POSITION] != MAGIC_V2:
            raise InvalidRecord(
                f"Produce version {version} takes batches of magic 2 only, not {records[MAGIC_POSITION]}"
            )
        if len(records) >= BATCH_HEADER_BYTES:
            attributes = records[ATTRIBUTES_POSITION + 1]
            if attributes & TRANSACTIONAL_BIT and not is_transactional:
                raise TransactionalIdAuthorizationFailed(
                    "records of a transaction come without a transactional id"
                )
            if version < _FIRST_VERSION_WITH_ZSTD and attributes & COMPRESSION_MASK == CompressionType.ZSTD:
                raise UnsupportedCompressionType(
                    f"Produce version {version} does not know zstd, version 7 does"
                )
    return records


def _fail(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    answer.error_message = str(error)
    if isinstance(error, RejectedRecords | RejectedTimestamps):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
            for each in error.record_errors
        ]


def _tell_leader(
    broker: Broker,
    exchange: Exchange,
    topic: str,
    answer: PartitionProduceResponse,
    response: ProduceResponse,
) -> None:
    image = broker.image
    found = image.topics.get(topic)
    if found is None or not 0 <= answer.index < len(found.partitions):
        return
    partition = found.partitions[answer.index]
    answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
    node = image.brokers.get(partition.leader)
    endpoint = None if node is None else node.endpoint(exchange.session.listener)
    if node is None or endpoint is None or any(each.node_id == node.id for each in response.node_endpoints):
        return
    response.node_endpoints.append(
        NodeEndpoint(node_id=node.id, host=endpoint.host, port=endpoint.port, rack=node.rack)
    )
