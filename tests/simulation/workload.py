"""Clients that produce, consume in a group and run transactions, and check what they see against what they did.

Each client writes down what the broker has acknowledged. While brokers are killed and connections break, it tries again
as a real client does. The rules:

- An acknowledged record is at the offset that was acknowledged, once, with its value, for ever.
- A group goes on from an offset that was committed last, or from a later one whose acknowledgement got lost.
- Of each transaction, a reader of committed records sees all values or none: all if it was committed, and never
  one of an aborted transaction. The same holds for the offsets in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    IllegalGeneration,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    LeaderNotAvailable,
    MemberIdRequired,
    NotController,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RebalanceInProgress,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownLeaderEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import iterate_batches
from tests.broker.group_requests import join_request
from tests.broker.record_requests import batch, fetch_request, produce_request
from tests.broker.transaction_requests import txn_offset_commit_request
from tests.simulation.client import SimulatedClient
from tests.simulation.world import START_MS

T = TypeVar("T")

EVENTS: Final = "events"
EVENT_PARTITIONS: Final = 3
LEDGER: Final = "ledger"
LEDGER_PARTITIONS: Final = 2
READERS: Final = "readers"
READ_COMMITTED: Final = 1
TRANSACTION_KEY: Final = 1
SESSION_TIMEOUT_MS: Final = 10_000
# Minutes of virtual time: a broker that does not answer by then never will.
ATTEMPTS_MAX: Final = 5_000
# The codes after which a client tries again.
PASSING: Final = frozenset(
    error.code
    for error in (
        ConcurrentTransactions,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        NotController,
        NotCoordinator,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        LeaderNotAvailable,
        OffsetNotAvailable,
        NotEnoughReplicasAfterAppend,
        RequestTimedOut,
        # A leader and a coordinator that do not know yet that they have been replaced agree with each other. Such a
        # coordinator does not know a transactional id that is younger. One that was lost stays unknown.
        InvalidTxnState,
        InvalidProducerIdMapping,
        # A coordinator that is being loaded cannot say whether a partition is part of a transaction.
        NotEnoughReplicas,
        NotLeaderOrFollower,
        UnknownTopicOrPartition,
    )
)
OUT_OF_GROUP: Final = frozenset(
    error.code for error in (IllegalGeneration, RebalanceInProgress, UnknownMemberId)
)
# A coordinator that is cut off confirms partitions that it knows from an earlier transaction, as Apache Kafka's does.
# The leader asks the coordinator of today.
PERHAPS_NOT_ADDED: Final = frozenset({InvalidTxnState.code})


@dataclass(slots=True, kw_only=True)
class Journal:
    """What clients know for sure."""

    # Values by partition and offset.
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    consumed: set[tuple[int, int]] = field(default_factory=set)
    committed_offsets: dict[int, int] = field(default_factory=dict)
    # Values of committed transactions, by partition, in order, for each transactional id.
    ledger: dict[str, dict[int, list[bytes]]] = field(default_factory=dict)
    ledger_offsets: dict[str, int] = field(default_factory=dict)
    are_events_done: bool = False
    event_partitions: int = EVENT_PARTITIONS


async def persist(client: SimulatedClient, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Tries until there is a result: connections break, and brokers are killed."""
    reason: object = "no result"
    for _ in range(ATTEMPTS_MAX):
        try:
            result = await attempt()
        except KafkaError as error:
            reason = error
        else:
            if result is not None:
                return result
        client.look_again()
        await client.pause()
    raise AssertionError(f"{client.name} has tried {ATTEMPTS_MAX} times: {reason}")


async def ask(
    client: SimulatedClient,
    api_name: str,
    version: int,
    body: Any,
    code_of: Callable[[Any], int] = lambda response: int(response.error_code),
    also: frozenset[int] = frozenset(),
) -> Any:
    """The first answer whose error does not pass. It is none, or one of `also`."""

    async def attempt() -> Any:
        response = await client.ask(api_name, version, body)
        return None if code_of(response) in PASSING - also else response

    response = await persist(client, attempt)
    code = code_of(response)
    assert code == 0 or code in also, f"{api_name}: {response}"
    return response


async def create_topics(client: SimulatedClient, replication_factor: int = 1) -> None:
    await create_topic(client, EVENTS, EVENT_PARTITIONS, replication_factor)
    await create_topic(client, LEDGER, LEDGER_PARTITIONS, replication_factor)


async def create_topic(client: SimulatedClient, name: str, partitions: int, replication_factor: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    # An attempt may have succeeded without an answer.
    exists = frozenset({TopicAlreadyExists.code})
    await ask(client, "CreateTopics", 7, request, lambda each: int(each.topics[0].error_code), exists)


def now_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1_000)


async def produce_events(
    client: SimulatedClient, journal: Journal, count: int, *, pause_s_max: float = 0.3
) -> None:
    """An idempotent producer."""
    answer = await ask(
        client,
        "InitProducerId",
        4,
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    )
    sequences = [0] * journal.event_partitions
    for number in range(count):
        partition = client.rng.randrange(journal.event_partitions)
        size = client.rng.choice((1, 1, 1, 3, 40))
        values = [f"{client.name}-{number}-{index}".encode() * 20 for index in range(size)]
        records = batch(
            *values,
            timestamp=now_ms(),
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=sequences[partition],
        )
        produced = await produce(client, EVENTS, partition, records)
        sequences[partition] += size
        for index, value in enumerate(values):
            at = (partition, produced.base_offset + index)
            assert at not in journal.acknowledged, f"offset {at} was acknowledged twice"
            journal.acknowledged[at] = value
        await client.pause(pause_s_max)


async def produce(
    client: SimulatedClient, topic: str, partition: int, records: bytes, transactional_id: str | None = None
) -> Any:
    request = produce_request(topic, records, partition=partition, acks=-1)
    request.transactional_id = transactional_id

    def code_of(response: Any) -> int:
        return int(response.responses[0].partition_responses[0].error_code)

    also = frozenset() if transactional_id is None else PERHAPS_NOT_ADDED
    response = await ask(client, "Produce", 9, request, code_of, also)
    return response.responses[0].partition_responses[0]


async def find_coordinator(client: SimulatedClient, key: str, key_type: int = 0) -> None:
    """Has the topic of the coordinator created, and waits until it can be used."""
    await ask(client, "FindCoordinator", 3, FindCoordinatorRequest(key=key, key_type=key_type))


class GroupMember:
    """A member of a classic group. It leads the group if it is told to, and assigns the partitions."""

    def __init__(self, client: SimulatedClient, journal: Journal) -> None:
        self._client = client
        self._journal = journal
        self._member_id = ""
        self._generation_id = -1

    async def run(self) -> None:
        """Consumes until all events have been consumed by the group."""
        await find_coordinator(self._client, READERS)
        while not self._is_done():
            partitions = await persist(self._client, self._join)
            await persist(self._client, lambda owned=partitions: self._consume(owned))  # type: ignore[misc]

    def _is_done(self) -> bool:
        journal = self._journal
        return journal.are_events_done and journal.acknowledged.keys() <= journal.consumed

    async def _join(self) -> list[int] | None:
        """The partitions of this member; None if it has to begin again."""
        client = self._client
        request = join_request(READERS, self._member_id, session_timeout_ms=SESSION_TIMEOUT_MS)
        joined = await client.ask("JoinGroup", 9, request)
        if joined.error_code == UnknownMemberId.code:
            self._member_id = ""
            return None
        if joined.error_code == MemberIdRequired.code:
            self._member_id = joined.member_id
            return None
        if joined.error_code in PASSING or joined.error_code in OUT_OF_GROUP:
            return None
        assert joined.error_code == 0, joined
        self._member_id, self._generation_id = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(each.member_id for each in joined.members)
            for index, member_id in enumerate(members):
                owned = bytes(range(index, self._journal.event_partitions, len(members)))
                assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=owned))
        synced = await client.ask(
            "SyncGroup",
            5,
            SyncGroupRequest(
                group_id=READERS,
                generation_id=self._generation_id,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
        )
        return list(synced.assignment) if synced.error_code == 0 else None

    async def _consume(self, partitions: list[int]) -> bool | None:
        """True when it has to join again, or all is done."""
        positions = await self._committed(partitions)
        while not self._is_done():
            for partition in partitions:
                positions[partition] = await self._poll(partition, positions[partition])
            code = await self._commit(positions)
            if code in OUT_OF_GROUP:
                return True
            assert code == 0 or code in PASSING, code
            if code == 0:
                self._journal.committed_offsets.update(positions)
            await self._client.pause(0.2)
        return True

    async def _committed(self, partitions: list[int]) -> dict[int, int]:
        found = await fetch_offsets(self._client, READERS, EVENTS, partitions)
        for partition, offset in found.items():
            acknowledged = self._journal.committed_offsets.get(partition, -1)
            assert offset >= acknowledged, (
                f"the group lost a commit of {acknowledged} in {partition}: {offset}"
            )
        return {partition: max(offset, 0) for partition, offset in found.items()}

    async def _poll(self, partition: int, position: int) -> int:
        request = fetch_request(EVENTS, position, partition=partition, max_wait_ms=50, max_bytes=8_000)
        response = await self._client.ask("Fetch", 12, request)
        answer = response.responses[0].partitions[0]
        if answer.error_code:
            assert answer.error_code in PASSING, answer
            self._client.look_again()
            return position
        for header, records in iterate_batches(bytes(answer.records or b"")):
            for record in records:
                at = (partition, int(record.offset))
                # A record may be read before its producer knows that it is there.
                assert self._journal.acknowledged.get(at, record.value) == record.value, at
                if record.offset >= position:
                    assert record.offset == position, f"offsets {position} to {record.offset} are missing"
                    self._journal.consumed.add(at)
                    position += 1
            assert header.next_offset == position
        return position

    async def _commit(self, positions: dict[int, int]) -> int:
        request = OffsetCommitRequest(
            group_id=READERS,
            generation_id_or_member_epoch=self._generation_id,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=EVENTS,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                        for partition, offset in positions.items()
                    ],
                )
            ],
        )
        response = await self._client.ask("OffsetCommit", 8, request)
        return max((each.error_code for each in response.topics[0].partitions), default=0)


async def fetch_offsets(
    client: SimulatedClient, group_id: str, topic: str, partitions: list[int]
) -> dict[int, int]:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    request = OffsetFetchRequest(groups=[group], require_stable=True)

    async def attempt() -> dict[int, int] | None:
        [answer] = (await client.ask("OffsetFetch", 8, request)).groups
        if answer.error_code in PASSING:
            return None
        assert answer.error_code == 0, answer
        found = answer.topics[0].partitions
        # An offset of a transaction that has not ended is not stable.
        if any(each.error_code for each in found):
            return None
        return {each.partition_index: each.committed_offset for each in found}

    return await persist(client, attempt)


async def run_transactions(client: SimulatedClient, journal: Journal, count: int) -> None:
    """A transactional producer that also commits an offset in each transaction."""
    transactional_id = client.name
    written = journal.ledger.setdefault(
        transactional_id, {partition: [] for partition in range(LEDGER_PARTITIONS)}
    )
    await find_coordinator(client, transactional_id, TRANSACTION_KEY)
    await find_coordinator(client, group_of(transactional_id))
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    producer = await ask(client, "InitProducerId", 4, init)
    named: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    sequences = [0] * LEDGER_PARTITIONS
    for number in range(count):
        values: dict[int, list[bytes]] = {}
        for partition in range(LEDGER_PARTITIONS):
            value = f"{transactional_id}-{number}".encode()
            records = batch(
                value,
                timestamp=now_ms(),
                base_sequence=sequences[partition],
                is_transactional=True,
                **named,
            )
            for _ in range(ATTEMPTS_MAX):
                await add_partition(client, transactional_id, named, partition)
                produced = await produce(client, LEDGER, partition, records, transactional_id)
                if produced.error_code == 0:
                    break
                client.look_again()
                await client.pause()
            assert produced.error_code == 0, produced
            sequences[partition] += 1
            values[partition] = [value]
            await client.pause()
        await commit_offset(client, transactional_id, named, number + 1)
        is_committed = client.rng.random() < 0.7
        end = EndTxnRequest(transactional_id=transactional_id, committed=is_committed, **named)
        await ask(client, "EndTxn", 3, end)
        if is_committed:
            journal.ledger_offsets[transactional_id] = number + 1
            for partition, added in values.items():
                written[partition] += added
        await client.pause(0.3)


def group_of(transactional_id: str) -> str:
    return f"group of {transactional_id}"


async def add_partition(
    client: SimulatedClient, transactional_id: str, named: dict[str, Any], partition: int
) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=named["producer_id"],
        v3_and_below_producer_epoch=named["producer_epoch"],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=LEDGER, partitions=[partition])],
    )

    def code_of(response: Any) -> int:
        [topic] = response.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    await ask(client, "AddPartitionsToTxn", 3, request, code_of)


async def commit_offset(
    client: SimulatedClient, transactional_id: str, named: dict[str, Any], offset: int
) -> None:
    group_id = group_of(transactional_id)
    added = AddOffsetsToTxnRequest(transactional_id=transactional_id, group_id=group_id, **named)
    await ask(client, "AddOffsetsToTxn", 3, added)
    request = txn_offset_commit_request(
        group_id, {(LEDGER, 0): offset}, transactional_id=transactional_id, **named
    )
    await ask(
        client,
        "TxnOffsetCommit",
        3,
        request,
        lambda response: int(response.topics[0].partitions[0].error_code),
    )


async def check(client: SimulatedClient, journal: Journal) -> None:
    """Reads everything again and compares it with what clients know."""
    for partition in range(journal.event_partitions):
        expected = {
            offset: value for (index, offset), value in journal.acknowledged.items() if index == partition
        }
        found = dict(enumerate(await read(client, EVENTS, partition)))
        assert found == expected, f"{EVENTS}-{partition}"
    for partition in range(LEDGER_PARTITIONS if journal.ledger else 0):
        values = await read(client, LEDGER, partition)
        for transactional_id, written in journal.ledger.items():
            mine = [value for value in values if value.startswith(transactional_id.encode())]
            assert mine == written[partition], f"{transactional_id} in {LEDGER}-{partition}"
    for transactional_id, offset in journal.ledger_offsets.items():
        committed = await fetch_offsets(client, group_of(transactional_id), LEDGER, [0])
        assert committed == {0: offset}, transactional_id


async def read(client: SimulatedClient, topic: str, partition: int) -> list[bytes]:
    """The values that a consumer of committed records sees."""
    found: list[bytes] = []
    offset = attempts = 0
    while True:
        request = fetch_request(topic, offset, partition=partition, isolation_level=READ_COMMITTED)

        def code_of(response: Any) -> int:
            return int(response.responses[0].partitions[0].error_code)

        response = await ask(client, "Fetch", 12, request, code_of)
        answer = response.responses[0].partitions[0]
        if not answer.records:
            if offset == answer.high_watermark:
                return found
            # The markers of a transaction may come after the answer to its end.
            assert attempts < ATTEMPTS_MAX, f"{topic}-{partition} ends at {offset}"
            attempts += 1
            await client.pause()
            continue
        starts = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or [])
        aborted: set[int] = set()
        for header, records in iterate_batches(bytes(answer.records)):
            assert header.base_offset == offset, f"{topic}-{partition}: offsets from {offset} are missing"
            offset = int(header.next_offset)
            while starts and starts[0][0] <= header.last_offset:
                aborted.add(starts.pop(0)[1])
            if header.is_control:
                marker = parse_end_txn_marker(records[0])
                if marker is not None and marker.control_type is ControlRecordType.ABORT:
                    aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                found += [record.value or b"" for record in records]
