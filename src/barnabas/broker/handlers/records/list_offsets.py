"""ListOffsets, versions 0 to 11: the offset for a timestamp, or for one of the special timestamps.

- Version 0 has a list of segment starts. From version 1 on it is the first record that is not older.
- Special timestamps: latest -1, earliest -2, max timestamp -3 (version 7), earliest local -4 (8), latest tiered -5 (9),
  earliest pending upload -6 (11). A consumer sees no further than the high watermark, with read_committed (version 2)
  no further than the last stable offset.
- From version 4 on the response has the leader epoch of the record.
- A new leader answers OFFSET_NOT_AVAILABLE (version 5) until its high watermark has reached the start of its epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission
from barnabas.broker.handlers.records.time_search import TimeSearch
from barnabas.broker.replication.partition import Partition
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from barnabas.log.partition.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TimestampAndOffset,
    is_search,
)
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from barnabas.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.security.acls import DESCRIBE

_CONSUMER: Final = -1
_ANY_REPLICA: Final = -2
_READ_COMMITTED: Final = 1
_FIRST_VERSION_WITH_EPOCH: Final = 4
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5
_FIRST_VERSION_OF: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class Readable(NamedTuple):
    """A partition's log, the offset behind the last record that the client may see, and whether that may go up yet."""

    partition: Partition
    log: PartitionLog
    end_offset: int
    is_behind: bool


class Question(NamedTuple):
    topic: str
    asked: ListOffsetsPartition
    answer: ListOffsetsPartitionResponse
    is_named_twice: bool


def handle(
    broker: Broker, exchange: Exchange[ListOffsetsResponse], request: ListOffsetsRequest
) -> Answer[ListOffsetsResponse]:
    asked = [each for topic in request.topics for each in topic.partitions]
    if len(asked) > AT_ONCE or any(is_search(each.timestamp) for each in asked):
        return exchange.answer_from(_answer_in_turns(broker, exchange, request))
    named = Counter(_names(request))
    response = ListOffsetsResponse()
    for question in _questions(broker, exchange, request, named, response):
        _answer(broker, exchange, request, question)
    return response


HANDLER: Final = Handler(ListOffsetsRequest, ListOffsetsResponse, handle)


def _names(request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)


def _questions(
    broker: Broker,
    exchange: AnyExchange,
    request: ListOffsetsRequest,
    named: Counter[tuple[str, int]],
    response: ListOffsetsResponse,
) -> Iterator[Question]:
    """The questions one after the other. Each has its answer in the response. Refused ones are left out."""
    permission = Permission(broker, exchange, DESCRIBE)
    for topic in request.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answers)
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.partitions.append(answer)
            if topic.name not in permission:
                answer.error_code = TopicAuthorizationFailed.code
                continue
            is_named_twice = exchange.version > 0 and named[topic.name, asked.partition_index] > 1
            yield Question(topic.name, asked, answer, is_named_twice)


async def _answer_in_turns(
    broker: Broker, exchange: AnyExchange, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Many partitions take long, and so does a search in batches."""
    turns = broker.turns
    await turns.next()
    named = Counter(_names(request))
    await turns.next()
    end_ns = turns.end_ns()
    search = TimeSearch(broker, exchange)
    response = ListOffsetsResponse()
    for question in _questions(broker, exchange, request, named, response):
        if exchange.version > 0 and is_search(question.asked.timestamp):
            await _answer_by_search(broker, exchange, request, question, search)
        else:
            _answer(broker, exchange, request, question)
        if turns.is_over(end_ns):
            await turns.next()
            end_ns = turns.end_ns()
    await turns.next()
    return response


def _answer(broker: Broker, exchange: AnyExchange, request: ListOffsetsRequest, question: Question) -> None:
    asked, answer = question.asked, question.answer
    try:
        if exchange.version == 0:
            _old_style(broker, request, question.topic, asked, answer)
            return
        readable = _readable(broker, exchange, request, question)
        if asked.timestamp == LATEST_TIMESTAMP:
            _check_available(exchange, readable)
            answer.offset = readable.end_offset
            if exchange.version >= _FIRST_VERSION_WITH_EPOCH:
                answer.leader_epoch = readable.partition.leader_epoch
            return
        _tell(exchange, question, readable.log.offset_for_timestamp(asked.timestamp), readable)
    except KafkaError as error:
        answer.error_code = error.code


async def _answer_by_search(
    broker: Broker,
    exchange: AnyExchange,
    request: ListOffsetsRequest,
    question: Question,
    search: TimeSearch,
) -> None:
    try:
        readable = _readable(broker, exchange, request, question)
        _tell(exchange, question, await search.find(readable.log, question.asked.timestamp), readable)
    except KafkaError as error:
        question.answer.error_code = error.code


def _readable(
    broker: Broker, exchange: AnyExchange, request: ListOffsetsRequest, question: Question
) -> Readable:
    asked = question.asked
    if question.is_named_twice:
        raise InvalidRequest(f"{question.topic}-{asked.partition_index} is named twice")
    timestamp = asked.timestamp
    if timestamp < 0 and timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        first_version = _FIRST_VERSION_OF.get(timestamp)
        if first_version is None or exchange.version < first_version:
            raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {exchange.version}")
    partition = broker.replicas.partition(question.topic, asked.partition_index)
    if request.replica_id == _ANY_REPLICA and partition.log is not None:
        # Tools compare replicas with each other.
        return Readable(partition, partition.log, partition.log.log_end_offset, False)
    log = partition.leader_log(asked.current_leader_epoch)
    if request.replica_id != _CONSUMER:
        return Readable(partition, log, log.log_end_offset, False)
    is_committed_only = request.isolation_level == _READ_COMMITTED
    end_offset = log.last_stable_offset if is_committed_only else log.high_watermark
    return Readable(partition, log, end_offset, partition.is_behind_its_epoch(log))


def _check_available(exchange: AnyExchange, readable: Readable) -> None:
    """A new leader may not know yet what was committed before it: the offset would go back for the client."""
    if readable.is_behind:
        what = f"The high watermark of {readable.partition.topic_partition} is before the leader's epoch."
        knows = exchange.version >= _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        raise OffsetNotAvailable(what) if knows else LeaderNotAvailable(what)


def _tell(
    exchange: AnyExchange, question: Question, found: TimestampAndOffset | None, readable: Readable
) -> None:
    # An empty log has a start, too.
    is_start = question.asked.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
    if found is None or (found.offset >= readable.end_offset and not is_start):
        if not is_start:
            _check_available(exchange, readable)
        return
    answer = question.answer
    answer.timestamp = found.timestamp
    answer.offset = found.offset
    if exchange.version >= _FIRST_VERSION_WITH_EPOCH:
        answer.leader_epoch = found.leader_epoch


def _old_style(
    broker: Broker,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    log = broker.replicas.partition(topic, asked.partition_index).leader_log()
    offsets = log.offsets_before(asked.timestamp, asked.max_num_offsets)
    if request.replica_id == _CONSUMER and any(offset > log.high_watermark for offset in offsets):
        offsets = [log.high_watermark, *(offset for offset in offsets if offset <= log.high_watermark)]
    answer.old_style_offsets = list(offsets[: max(asked.max_num_offsets, 0)])
