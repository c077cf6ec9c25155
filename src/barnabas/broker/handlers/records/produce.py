"""Produce, versions 0 to 13: appends records to partitions.

- acks=0 wants no response: an error closes the connection. acks=1 is answered when the leader has written the records,
  acks=-1 when all in-sync replicas have, or `timeout_ms` has passed. Other values are refused.
- Versions 0 to 2 carry message sets of the old formats. From version 3 on a partition has one batch of v2, from version
  7 on perhaps with zstd.
- Records of a transaction (from version 3 on) are appended after its coordinator has verified their partitions. From
  version 11 on the client knows TRANSACTION_ABORTABLE, from version 12 on the coordinator adds the partitions itself.
- A client needs WRITE on each topic, and on the transactional id of records of a transaction.
- Only the broker, and clients with the id `__admin_client`, write to internal topics.
- From version 8 on the response names the invalid records, from version 10 on the current leader. From version 13 on
  topics are given by their id.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.handlers.records.slow_append import append_with_worker
from barnabas.broker.handlers.transaction_verification import FIRST_PRODUCE_WITH_IDS, Verified, verify_produce
from barnabas.broker.quotas.quotas import PRODUCER_BYTE_RATE
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.replicated import await_replicated
from barnabas.broker.requests.authorization import refusal
from barnabas.broker.requests.conversions import RequestShare
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange, Parked
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.coordination.metadata.image import INTERNAL_TOPICS
from barnabas.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    NotLeaderOrFollower,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from barnabas.log.partition.append import AppendInfo
from barnabas.log.producers.state import NO_GUARD
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
from barnabas.records.validate import RecordsTakeLong
from barnabas.security.acls import TRANSACTIONAL_ID, WRITE

# Clients with this id may write to internal topics, as in Kafka.
ADMIN_CLIENT_ID: Final = "__admin_client"

_ACKS: Final = frozenset({-1, 0, 1})
_FIRST_VERSION_WITH_BATCHES: Final = 3
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_LEADER: Final = 10


class Appending:
    """A Produce request that is being appended: at once if it is small, else in turns.

    Partitions are appended to in the order of the request. If records take long to validate, the partitions after them
    wait until the worker process has validated them.
    """

    __slots__ = (
        "_broker",
        "_exchange",
        "_failure",
        "_has_ended",
        "_next",
        "_permission",
        "_pieces",
        "_request",
        "_response",
        "_share",
        "_size_bytes",
        "_unreplicated",
        "_verified",
    )

    def __init__(
        self,
        broker: Broker,
        exchange: Exchange[ProduceResponse],
        request: ProduceRequest,
        verified: Verified | None,
    ) -> None:
        self._broker = broker
        self._exchange = exchange
        self._request = request
        self._verified = verified
        self._permission = None if broker.authorization is None else Permission(broker, exchange, WRITE)
        self._response = ProduceResponse()
        # The number of partitions whose records the in-sync replicas have not all written.
        self._unreplicated = 0
        self._has_ended = False
        self._failure: KafkaError | None = None
        self._size_bytes = 0
        self._next = 0
        self._share: RequestShare | None = None
        self._pieces: list[tuple[str | None, PartitionProduceData, PartitionProduceResponse]] = []
        by_id = exchange.version >= FIRST_PRODUCE_WITH_IDS
        for topic in request.topic_data:
            name = broker.image.topic_names.get(topic.topic_id) if by_id else topic.name
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(answers)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                answers.partition_responses.append(answer)
                self._pieces.append((name, data, answer))

    def begin(self) -> Answer[ProduceResponse]:
        count = len(self._pieces)
        if count == 1:
            parked = self._append_next()
            return self._finish() if parked is None else parked
        if count > AT_ONCE:
            return self._go_on_in_turn()
        return self._append_for_a_turn()

    def _go_on_in_turn(self) -> Parked[ProduceResponse]:
        """Appends to the next partitions when the request's turn comes."""
        parked = self._exchange.park()
        self._broker.turns.add(partial(parked.answer_with, self._append_for_a_turn))
        return parked

    def _append_for_a_turn(self) -> Answer[ProduceResponse]:
        """Answers after the last partition; until then the rest follows in other turns."""
        turns = self._broker.turns
        end_ns = turns.end_ns()
        while self._next < len(self._pieces):
            parked = self._append_next()
            if parked is not None:
                return parked
            if turns.is_over(end_ns) and self._next < len(self._pieces):
                return self._go_on_in_turn()
        return self._finish()

    def _append_next(self) -> Parked[ProduceResponse] | None:
        """Parks the request if the records take long: it continues when the worker process has validated them."""
        name, data, answer = self._pieces[self._next]
        self._next += 1
        request = self._request
        exchange = self._exchange
        try:
            if self._permission is not None and name is not None:
                self._permission.check(name)
            if request.acks not in _ACKS:
                raise InvalidRequiredAcks(f"acks is {request.acks}, and can be -1, 0 or 1")
            if name is None:
                raise UnknownTopicId("there is no topic with this id")
            if name in INTERNAL_TOPICS and exchange.client_id != ADMIN_CLIENT_ID:
                raise InvalidTopicException(f"{name} is written to by the broker alone")
            records = _checked_records(data, exchange.version, self._verified is not None)
            self._size_bytes += len(records)
            partition = self._broker.replicas.partition(name, data.index)
            info = partition.append(
                records,
                request.acks,
                AppendOrigin.CLIENT,
                self._guard(name, data.index),
                only_briefly=True,
            )
        except RecordsTakeLong:
            return exchange.answer_from(self._append_slowly(name or "", data.index, records, answer))
        except KafkaError as error:
            self._note_failure(name or "", answer, error)
            return None
        self._note_append(partition, answer, info)
        return None

    def _guard(self, topic: str, index: int) -> int:
        verified = self._verified
        return NO_GUARD if verified is None else verified.guard(TopicPartition(topic, index))

    def _note_append(self, partition: Partition, answer: PartitionProduceResponse, info: AppendInfo) -> None:
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.log_append_time
        answer.log_start_offset = info.log_start_offset
        if self._request.acks == ACKS_ALL and not partition.has_replicated(info.last_offset + 1):
            self._unreplicated += 1
            await_replicated(
                partition,
                info.last_offset + 1,
                self._request.timeout_ms,
                partial(self._note_replicated, partition.topic_partition.topic, answer),
            )

    def _note_replicated(
        self, topic: str, answer: PartitionProduceResponse, error: KafkaError | None
    ) -> None:
        if error is not None:
            self._note_failure(topic, answer, error)
        self._unreplicated -= 1
        if self._has_ended and not self._unreplicated:
            self._exchange.park().answer(self._response)

    def _note_failure(self, topic: str, answer: PartitionProduceResponse, error: KafkaError) -> None:
        # Its traceback leads back here: the cycle would keep the records in memory.
        self._failure = error.with_traceback(None)
        _fail(answer, error)
        exchange = self._exchange
        if exchange.version >= _FIRST_VERSION_WITH_LEADER and isinstance(error, NotLeaderOrFollower):
            _tell_leader(self._broker, exchange, topic, answer, self._response)

    async def _append_slowly(
        self, topic: str, index: int, records: Buffer, answer: PartitionProduceResponse
    ) -> Answer[ProduceResponse]:
        broker = self._broker
        share = self._share
        if share is None:
            share = self._share = broker.conversions.share(self._exchange.session)
        try:
            target = TopicPartition(topic, index)
            guard = self._guard(topic, index)
            info = await append_with_worker(broker, share, target, records, self._request.acks, guard)
            self._note_append(broker.replicas.partition(topic, index), answer, info)
        except KafkaError as error:
            self._note_failure(topic, answer, error)
        return self._go_on_in_turn()

    def _finish(self) -> Answer[ProduceResponse]:
        broker = self._broker
        exchange = self._exchange
        request = self._request
        if broker.quotas.has(PRODUCER_BYTE_RATE):
            user = exchange.session.user
            exchange.throttle(
                broker.quotas.record(
                    PRODUCER_BYTE_RATE, user, exchange.client_id, self._size_bytes, broker.now_ms
                )
            )
        if request.acks == 0:
            failure = self._failure
            if failure is not None:
                raise failure
            return exchange.respond_nothing()
        self._has_ended = True
        return exchange.park() if self._unreplicated else self._response


def handle(
    broker: Broker, exchange: Exchange[ProduceResponse], request: ProduceRequest
) -> Answer[ProduceResponse]:
    if request.transactional_id is None:
        return Appending(broker, exchange, request, None).begin()
    if _has_transactional_records(request) and denies(
        broker, exchange, WRITE, TRANSACTIONAL_ID, request.transactional_id
    ):
        return _refuse_all(request, refusal(TRANSACTIONAL_ID))
    parked = exchange.park()
    then = partial(_append_verified, parked, broker, exchange, request)
    verify_produce(broker, exchange, request, then)
    return parked


def _has_transactional_records(request: ProduceRequest) -> bool:
    """Without them the transactional id means nothing."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < BATCH_HEADER_BYTES:
                continue
            assert not isinstance(records, FileSlice)
            if records[MAGIC_POSITION] == MAGIC_V2 and records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT:
                return True
    return False


HANDLER: Final = Handler(ProduceRequest, ProduceResponse, handle)


def _refuse_all(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    if request.acks == 0:
        # There is no response: the end of the connection tells the client.
        raise error
    response = ProduceResponse()
    for topic in request.topic_data:
        answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answers)
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index)
            _fail(answer, error)
            answers.partition_responses.append(answer)
    return response


def _append_verified(
    parked: Parked[ProduceResponse],
    broker: Broker,
    exchange: Exchange[ProduceResponse],
    request: ProduceRequest,
    verified: Verified,
) -> None:
    parked.answer_with(Appending(broker, exchange, request, verified).begin)


def _checked_records(data: PartitionProduceData, version: int, is_transactional: bool) -> Buffer:
    """Checks the rules of the API for records. The log checks the rules of the topic."""
    records = data.records
    assert not isinstance(records, FileSlice)
    if not records:
        raise InvalidRecord("the partition has no records")
    if version >= _FIRST_VERSION_WITH_BATCHES and len(records) > MAGIC_POSITION:
        if records[MAGIC_POSITION] != MAGIC_V2:
            raise InvalidRecord(
                f"Produce version {version} takes batches of magic 2 only, not {records[MAGIC_POSITION]}"
            )
        if len(records) >= BATCH_HEADER_BYTES:
            attributes = records[ATTRIBUTES_POSITION + 1]
            if attributes & TRANSACTIONAL_BIT and not is_transactional:
                raise TransactionalIdAuthorizationFailed("transactional records need a transactional id")
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
    exchange: AnyExchange,
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
