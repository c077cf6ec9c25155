"""Groups and transactions of every kind on a broker of any make, and what it says of them.

All is done by raw requests of versions that Kafka 3.9.1, 4.3.1 and we have, so that one description can be compared
with another. Sessions and transactions are given so much time that none ends while brokers change.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from barnabas.broker.coordinators.keys import partition_of_key
from barnabas.clock import SystemClock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import Offset, TimestampMs, TopicPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.list_transactions_request import ListTransactionsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.requests import decode_response
from barnabas.records.builder import BatchBuilder
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import iterate_batches
from barnabas.transactions.records import TransactionRecord, parse_record
from barnabas.transactions.transaction import Transaction, TransactionState
from tests.broker.group_requests import (
    commit,
    delete_groups,
    describe,
    find,
    join_request,
    leave,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.transaction_requests import (
    add_offsets,
    add_partitions,
    commit_in_transaction,
    describe_producers,
    end_transaction,
    init_producer,
    produce_in_transaction,
)
from tests.waiting import wait_until

TOPIC: Final = "coordinated"
PARTITIONS: Final = 3
COORDINATOR_PARTITIONS: Final = 5
SETTINGS: Final = {
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "1800000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
}
SESSION_MS: Final = 1_500_000
DESCRIBE_VERSION: Final = 5
CONSUMER_GROUP: Final = "consumer-protocol"
CLASSIC_GROUPS: Final = (
    *("simple", "empty", "with-members", "static", "of-connect", "pending-offsets", "deleted", "unknown"),
)
TRANSACTIONS: Final = (
    *("begun", "committed", "aborted", "open", "to-commit", "to-abort", "with-offsets", "never-seen"),
)


def fill(port: int, *, has_consumer_protocol: bool) -> None:
    with RawClient(port, client_id="filling") as client:
        # A controller places partitions when it knows the broker, which can be after the broker listens.
        wait_until(lambda: bool(client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers))
        create_topic(client, TOPIC, PARTITIONS)
        for group_id in (*CLASSIC_GROUPS, CONSUMER_GROUP):
            _wait_for_coordinator(client, group_id)
        _fill_groups(client, port)
        if has_consumer_protocol:
            _fill_consumer_group(client)
        _fill_transactions(client)


def _wait_for_coordinator(client: RawClient, group_id: str) -> None:
    wait_until(
        lambda: (
            find(client, group_id, version=4).error_code == 0
            and describe(client, group_id, version=DESCRIBE_VERSION).error_code == 0
        )
    )


def _fill_groups(client: RawClient, port: int) -> None:
    for partition in range(PARTITIONS):
        codes = commit(client, "simple", {(TOPIC, partition): 10 + partition}, metadata="by hand")
        assert set(codes.values()) == {0}
    commit(client, "deleted", {(TOPIC, 0): 1})
    assert delete_groups(client, "deleted") == {"deleted": 0}

    joined = _join(client, "empty")
    assert commit(client, "empty", {(TOPIC, 1): 5}, joined=joined) == {(TOPIC, 1): 0}
    assert leave(client, "empty", joined.member_id) == 0
    _join_together(port, "with-members", 3)
    joined = _join(client, "static", instance_id="one")
    assert commit(client, "static", {(TOPIC, 2): 7}, joined=joined) == {(TOPIC, 2): 0}
    _join(client, "of-connect", protocol_type="connect", protocol="sessioned")


def _request(
    group_id: str, member_id: str, protocol_type: str, protocol: str, **options: Any
) -> JoinGroupRequest:
    request = join_request(
        group_id, member_id, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, **options
    )
    request.protocol_type = protocol_type
    request.protocols = [JoinGroupRequestProtocol(name=protocol, metadata=request.protocols[0].metadata)]
    return request


def _join(
    client: RawClient,
    group_id: str,
    *,
    protocol_type: str = "consumer",
    protocol: str = "range",
    **options: Any,
) -> Any:
    """The only member of its group, with an assignment."""
    joined = client.ask("JoinGroup", 9, _request(group_id, "", protocol_type, protocol, **options))
    if joined.error_code == 79:
        request = _request(group_id, joined.member_id, protocol_type, protocol, **options)
        joined = client.ask("JoinGroup", 9, request)
    assert joined.error_code == 0, joined
    _sync(client, group_id, joined, [joined.member_id], protocol_type, protocol, **options)
    return joined


def _sync(
    client: RawClient,
    group_id: str,
    joined: Any,
    members: list[str],
    protocol_type: str = "consumer",
    protocol: str = "range",
    instance_id: str | None = None,
) -> None:
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=b"assigned to " + each.encode())
            for each in members
        ],
    )
    assert client.ask("SyncGroup", 5, request).error_code == 0


def _join_together(port: int, group_id: str, count: int) -> None:
    """One member after the other; those that are there join again, so that all are in the last generation."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(port, client_id=f"member-{number}")) for number in range(count)
        ]
        ids: list[str] = []
        for newcomer in clients:
            given = newcomer.ask("JoinGroup", 9, _request(group_id, "", "consumer", "range"))
            assert given.error_code == 79
            newcomer.send("JoinGroup", 9, _request(group_id, given.member_id, "consumer", "range"))
            if ids:
                _wait_for_state(port, group_id, "PreparingRebalance")
            for client, member_id in zip(clients, ids, strict=False):
                client.send("JoinGroup", 9, _request(group_id, member_id, "consumer", "range"))
            ids.append(given.member_id)
            answers = [_receive(client, "JoinGroup", 9) for client in clients[: len(ids)]]
            assert {(each.error_code, each.generation_id) for each in answers} == {(0, len(ids))}
        leader = ids.index(answers[0].leader)
        for number in (leader, *(each for each in range(count) if each != leader)):
            _sync(clients[number], group_id, answers[number], ids if number == leader else [])


def _wait_for_state(port: int, group_id: str, state: str) -> None:
    with RawClient(port) as client:
        wait_until(lambda: bool(describe(client, group_id, version=DESCRIBE_VERSION).group_state == state))


def _receive(client: RawClient, api_name: str, version: int) -> Any:
    return decode_response(api_for_name(api_name), version, client.receive_frame()).body


def _fill_consumer_group(client: RawClient) -> None:
    """Two members that have taken what they were given, one of them static."""
    for number, instance_id in enumerate((None, "static")):
        request = ConsumerGroupHeartbeatRequest(
            group_id=CONSUMER_GROUP,
            member_id="",
            member_epoch=0,
            instance_id=instance_id,
            rebalance_timeout_ms=600_000,
            subscribed_topic_names=[TOPIC],
            server_assignor="uniform" if number else None,
            topic_partitions=[],
        )
        answer = client.ask("ConsumerGroupHeartbeat", 0, request)
        assert answer.error_code == 0, answer


def _fill_transactions(client: RawClient) -> None:
    init_producer(client, "begun")
    for name, end in (
        ("committed", True),
        ("aborted", False),
        ("to-commit", None),
        ("to-abort", None),
        # The last, so that what is below it can become stable.
        ("open", None),
    ):
        producer = init_producer(client, name)
        partitions = (0,) if name == "committed" else (0, 2)
        add_partitions(client, name, producer, TOPIC, *partitions)
        for partition in partitions:
            _produce(client, name, producer, partition)
        if end is not None:
            assert end_transaction(client, name, producer, commit=end, version=3).error_code == 0
    producer = init_producer(client, "with-offsets")
    add_offsets(client, "with-offsets", producer, "pending-offsets")
    codes = commit_in_transaction(
        client,
        "pending-offsets",
        {(TOPIC, 0): 3},
        version=3,
        producer_id=producer[0],
        producer_epoch=producer[1],
        transactional_id="with-offsets",
    )
    assert codes == {(TOPIC, 0): 0}
    commit(client, "pending-offsets", {(TOPIC, 1): 4})
    wait_until(
        lambda: (
            {"CompleteCommit", "CompleteAbort"}
            <= {each.transaction_state for each in _transactions(client) if each.error_code == 0}
        )
    )


def _produce(client: RawClient, name: str, producer: tuple[int, int], partition: int) -> None:
    answer = produce_in_transaction(
        client,
        TOPIC,
        name.encode(),
        producer_id=producer[0],
        producer_epoch=producer[1],
        sequence=0,
        transactional_id=name,
        version=9,
        partition=partition,
    )
    assert answer.error_code == 0, answer


def _transactions(client: RawClient) -> list[Any]:
    request = DescribeTransactionsRequest(transactional_ids=list(TRANSACTIONS))
    found: list[Any] = client.ask("DescribeTransactions", 0, request).transaction_states
    return found


def told(port: int, *, has_consumer_protocol: bool) -> dict[str, Any]:
    """What a broker says of all of it, as soon as its coordinators have read what they are to know."""
    with RawClient(port, client_id="asking") as client:
        for group_id in (*CLASSIC_GROUPS, CONSUMER_GROUP):
            _wait_for_coordinator(client, group_id)
        for name in TRANSACTIONS:
            wait_until(lambda n=name: find(client, n, version=4, key_type=1).error_code == 0)  # type: ignore[misc]
        wait_until(lambda: client.ask("ListGroups", 4, ListGroupsRequest()).error_code == 0)
        wait_until(lambda: client.ask("ListTransactions", 0, ListTransactionsRequest()).error_code == 0)
        wait_until(lambda: not {each.error_code for each in _transactions(client)} & {14, 15, 16})
        found: dict[str, Any] = {
            "listed groups": {
                group.group_id: (group.protocol_type, group.group_state)
                for group in client.ask("ListGroups", 4, ListGroupsRequest()).groups
                if group.group_id != CONSUMER_GROUP
            },
            "groups": {group_id: _group(client, group_id) for group_id in CLASSIC_GROUPS},
            "offsets": {group_id: _offsets(client, group_id) for group_id in CLASSIC_GROUPS},
            "listed transactions": {
                each.transactional_id: (each.producer_id, each.transaction_state)
                for each in client.ask("ListTransactions", 0, ListTransactionsRequest()).transaction_states
            },
            "transactions": {
                each.transactional_id: {
                    "error": each.error_code,
                    "state": each.transaction_state,
                    "timeout": each.transaction_timeout_ms,
                    "start": each.transaction_start_time_ms,
                    "producer": (each.producer_id, each.producer_epoch),
                    "partitions": sorted(
                        (topic.topic, partition) for topic in each.topics for partition in topic.partitions
                    ),
                }
                for each in _transactions(client)
            },
            "producers": {partition: _producers(client, partition) for partition in range(PARTITIONS)},
        }
        if has_consumer_protocol:
            found["consumer group"] = _consumer_group(client)
    return found


def _group(client: RawClient, group_id: str) -> dict[str, Any]:
    group = describe(client, group_id, version=DESCRIBE_VERSION)
    return {
        "error": group.error_code,
        "state": group.group_state,
        "type": group.protocol_type,
        "protocol": group.protocol_data,
        "members": {
            member.member_id: (
                member.group_instance_id,
                member.client_id,
                member.client_host,
                bytes(member.member_metadata),
                bytes(member.member_assignment),
            )
            for member in group.members
        },
    }


def _offsets(client: RawClient, group_id: str) -> dict[str, Any]:
    """Both as they are and as a consumer that waits for transactions gets them."""
    found = {}
    for require_stable in (False, True):
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=require_stable
        )
        [group] = client.ask("OffsetFetch", 8, request).groups
        found["stable" if require_stable else "any"] = (
            group.error_code,
            {
                (topic.name, each.partition_index): (
                    each.error_code,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                )
                for topic in group.topics
                for each in topic.partitions
            },
        )
    return found


def _producers(client: RawClient, partition: int) -> dict[int, Any]:
    return {
        each.producer_id: (
            each.producer_epoch,
            each.last_sequence,
            each.current_txn_start_offset,
        )
        for each in describe_producers(client, TOPIC, partition).active_producers
    }


def _consumer_group(client: RawClient) -> dict[str, Any]:
    [group] = client.ask(
        "ConsumerGroupDescribe", 0, ConsumerGroupDescribeRequest(group_ids=[CONSUMER_GROUP])
    ).groups
    return {
        "error": group.error_code,
        "state": group.group_state,
        "epochs": (group.group_epoch, group.assignment_epoch),
        "assignor": group.assignor_name,
        "members": {
            member.member_id: (
                member.instance_id,
                member.client_id,
                member.client_host,
                member.member_epoch,
                member.subscribed_topic_names,
                _partitions(member.assignment),
                _partitions(member.target_assignment),
            )
            for member in group.members
        },
    }


def _partitions(assignment: Any) -> list[tuple[str, list[int]]]:
    return sorted((topic.topic_name, sorted(topic.partitions)) for topic in assignment.topic_partitions)


def prepare_ends(directory: Path) -> None:
    """Has the coordinator that wrote a directory stop between a decision and its markers, for two transactions.

    It takes a crash of a few microseconds to come by that; here the one record is appended that such a coordinator
    has written last.
    """
    manager = LogManager(
        [str(directory)],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock()),
        config_of=lambda topic: LogConfig(cleanup_policy=("compact",)),
    )
    manager.open()
    try:
        for name, state in (
            ("to-commit", TransactionState.PREPARE_COMMIT),
            ("to-abort", TransactionState.PREPARE_ABORT),
        ):
            number = partition_of_key(name, COORDINATOR_PARTITIONS)
            log = manager.log(TopicPartition("__transaction_state", number))
            assert log is not None
            last = _last(directory / f"__transaction_state-{number}", name)
            _append(log, TransactionRecord(name, replace(last, state=state)))
    finally:
        manager.close()


def _last(directory: Path, transactional_id: str) -> Transaction:
    """What the partition says last of a transactional id."""
    found = None
    for file in sorted(directory.glob("*.log")):
        for _, records in iterate_batches(file.read_bytes()):
            for record in records:
                parsed = parse_record(record)
                if parsed is not None and parsed.transactional_id == transactional_id:
                    found = parsed.transaction
    assert found is not None
    return found


def _append(log: PartitionLog, record: TransactionRecord) -> None:
    builder = BatchBuilder(base_offset=Offset(0))
    builder.append(TimestampMs(int(time.time() * 1_000)), record.key_bytes(), record.value_bytes())
    epoch = log.latest_epoch
    log.append_as_leader(bytearray(builder.build()), leader_epoch=epoch or 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
