"""The coordinator of transactions on a running broker, API by API and version by version."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import (
    NONE,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from tests.broker.coordinator_requests import (
    NOBODY,
    TRANSACTION,
    Producer,
    add_offsets,
    add_partitions,
    ask_init,
    committed_values,
    describe_transaction,
    end,
    find_transaction,
    init,
    last_stable_offset,
    list_transactions,
    produce,
    wait_for_transaction_coordinator,
)
from tests.broker.group_requests import fetch_offsets, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker
from tests.broker.transaction_requests import commit_in_transaction
from tests.waiting import wait_until

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("transactions") / "data", SETTINGS) as running:
        with running.client() as client:
            create_topic(client, "topic", 3)
            wait_for_transaction_coordinator(client)
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


@pytest.fixture
def name() -> str:
    """A transactional id that no other test uses."""
    return f"id-{next(_numbers)}"


def test_the_features_that_clients_look_at(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = client.ask("ApiVersions", 4, request)
    levels = {
        feature.name: (feature.min_version_level, feature.max_version_level)
        for feature in answer.finalized_features
    }
    assert levels["transaction.version"] == (2, 2)
    assert answer.finalized_features_epoch >= 0
    supported = {feature.name: feature for feature in answer.supported_features}
    assert (supported["transaction.version"].min_version, supported["transaction.version"].max_version) == (
        0,
        2,
    )
    # Clients of that version do not know how to read a feature that may be at level 0.
    older = client.ask("ApiVersions", 3, request)
    assert "transaction.version" not in {feature.name for feature in older.supported_features}
    assert older.finalized_features == answer.finalized_features


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_is_found(broker: RunningBroker, client: RawClient, name: str, version: int) -> None:
    found = find_transaction(client, name, version=version)
    assert (found.error_code, found.host, found.port) == (NONE, "127.0.0.1", broker.port)


def test_coordinators_of_many_ids_are_found_at_once(client: RawClient) -> None:
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["a", "b", ""])
    found = client.ask("FindCoordinator", 6, request).coordinators
    assert [(each.key, each.error_code) for each in found] == [("a", NONE), ("b", NONE), ("", NONE)]


@pytest.mark.parametrize("version", range(6))
def test_an_id_for_a_producer_without_transactions(client: RawClient, version: int) -> None:
    first = init(client, None, version=version)
    assert first.epoch == 0
    assert init(client, None, version=version).id > first.id


@pytest.mark.parametrize("version", range(6))
def test_ids_and_epochs_of_producers(client: RawClient, name: str, version: int) -> None:
    first = init(client, name, version=version)
    assert first.epoch == 0
    second = init(client, name, version=version)
    assert second == Producer(first.id, 1)
    for transactional_id, timeout_ms, code in (
        ("", 60_000, InvalidRequest.code),
        (name, 0, InvalidTransactionTimeout.code),
        (name, -1, InvalidTransactionTimeout.code),
        (name, 900_001, InvalidTransactionTimeout.code),
    ):
        answer = ask_init(client, transactional_id, timeout_ms=timeout_ms, version=version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
    if version >= 3:
        assert init(client, name, expected=second, version=version) == Producer(first.id, 2)
        fenced = ProducerFenced if version >= 4 else InvalidProducerEpoch
        for expected, code in (
            (first, fenced.code),
            (Producer(first.id + 1_000_000, 0), fenced.code),
            (Producer(-1, 0), InvalidRequest.code),
            (Producer(first.id, -1), InvalidRequest.code),
        ):
            answer = ask_init(client, name, expected=expected, version=version)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
        nobody = ask_init(client, None, expected=Producer(-1, 0), version=version)
        assert nobody.error_code == InvalidRequest.code


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(client: RawClient, name: str, version: int) -> None:
    topics = {"topic": [0, 2]}
    added = {("topic", 0): NONE, ("topic", 2): NONE}

    def every(error: type[KafkaError]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(added, error.code)

    stranger = Producer(1_000_000, 0)
    assert add_partitions(client, name, stranger, topics, version=version) == every(InvalidProducerIdMapping)
    producer = init(client, name)
    assert add_partitions(client, name, producer, topics, version=version) == added
    assert add_partitions(client, name, producer, topics, version=version) == added
    described = describe_transaction(client, name)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("topic", [0, 2])]
    fenced = ProducerFenced if version >= 2 else InvalidProducerEpoch
    for epoch in (producer.epoch - 1, producer.epoch + 1):
        sender = Producer(producer.id, epoch)
        assert add_partitions(client, name, sender, topics, version=version) == every(fenced)
    assert add_partitions(client, name, stranger, topics, version=version) == every(InvalidProducerIdMapping)
    assert add_partitions(client, "", producer, topics, version=version) == every(InvalidRequest)


@pytest.mark.parametrize("version", range(6))
def test_all_partitions_are_added_or_none(client: RawClient, name: str, version: int) -> None:
    producer = init(client, name)
    unknown = UnknownTopicOrPartition.code
    assert add_partitions(client, name, producer, {"topic": [0, 3, -1], "nowhere": [0]}, version=version) == {
        ("topic", 0): OperationNotAttempted.code,
        ("topic", 3): unknown,
        ("topic", -1): unknown,
        ("nowhere", 0): unknown,
    }
    internal = {"__transaction_state": [0], "topic": [1]}
    errors = add_partitions(client, name, producer, internal, version=version)
    if version < 4:
        assert errors == {
            ("__transaction_state", 0): TopicAuthorizationFailed.code,
            ("topic", 1): OperationNotAttempted.code,
        }
    else:
        assert set(errors.values()) == {NONE}


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions(client: RawClient, name: str, version: int) -> None:
    def verify(producer: Producer, *indexes: int, transactional_id: str = name) -> list[int]:
        errors = add_partitions(
            client, transactional_id, producer, {"topic": list(indexes)}, version=version, verify_only=True
        )
        return list(errors.values())

    assert verify(Producer(1, 0), 0) == [InvalidProducerIdMapping.code]
    producer = init(client, name)
    assert verify(producer, 0) == [TransactionAbortable.code]
    add_partitions(client, name, producer, {"topic": [0]}, version=version)
    assert verify(producer, 0, 1) == [NONE, TransactionAbortable.code]
    assert verify(Producer(producer.id, 7), 0) == [ProducerFenced.code]
    assert verify(producer, 0, transactional_id="") == [InvalidRequest.code]
    assert describe_transaction(client, name).topics[0].partitions == [0]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_for_many_transactions_at_once(client: RawClient, name: str, version: int) -> None:
    producer = init(client, name)
    asked = [
        (name, producer, False),
        (f"{name}-unknown", producer, False),
        (name, producer, True),
        ("", producer, True),
    ]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=sender.id,
                producer_epoch=sender.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name="topic", partitions=[1])],
            )
            for transactional_id, sender, verify_only in asked
        ]
    )
    results = client.ask("AddPartitionsToTxn", version, request).results_by_transaction
    assert [
        (result.transactional_id, result.topic_results[0].results_by_partition[0].partition_error_code)
        for result in results
    ] == [
        (name, NONE),
        (f"{name}-unknown", InvalidProducerIdMapping.code),
        (name, NONE),
        ("", InvalidRequest.code),
    ]
    nothing = client.ask("AddPartitionsToTxn", version, AddPartitionsToTxnRequest())
    assert (nothing.error_code, nothing.results_by_transaction) == (NONE, [])


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added(client: RawClient, name: str, version: int) -> None:
    producer = init(client, name)
    assert add_offsets(client, name, producer, "group", version=version) == NONE
    [topic] = describe_transaction(client, name).topics
    assert topic.topic == "__consumer_offsets"
    fenced = ProducerFenced if version >= 2 else InvalidProducerEpoch
    older = Producer(producer.id, -1)
    assert add_offsets(client, name, older, "group", version=version) == fenced.code
    stranger = Producer(producer.id + 1_000_000, 0)
    assert add_offsets(client, name, stranger, "group", version=version) == InvalidProducerIdMapping.code
    assert add_offsets(client, f"{name}-x", producer, "group", version=version) == (
        InvalidProducerIdMapping.code
    )
    assert add_offsets(client, "", producer, "group", version=version) == InvalidRequest.code


@pytest.mark.parametrize("version", range(6))
def test_transactions_are_ended(client: RawClient, name: str, version: int) -> None:
    assert end(client, name, Producer(1, 0), version=version).error_code == InvalidProducerIdMapping.code
    assert end(client, "", Producer(1, 0), version=version).error_code == InvalidRequest.code
    producer = init(client, name)
    assert end(client, name, producer, version=version).error_code == InvalidTxnState.code
    fenced = ProducerFenced if version >= 2 else InvalidProducerEpoch
    for commit, completed in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        assert set(add_partitions(client, name, producer, {"topic": [0]}).values()) == {NONE}
        stranger = Producer(producer.id + 1_000_000, producer.epoch)
        refused = end(client, name, stranger, commit=commit, version=version)
        assert refused.error_code == InvalidProducerIdMapping.code
        newer = Producer(producer.id, producer.epoch + 1)
        assert end(client, name, newer, commit=commit, version=version).error_code == fenced.code
        answer = end(client, name, producer, commit=commit, version=version)
        assert answer.error_code == NONE
        before = producer
        if version >= 5:
            producer = Producer(answer.producer_id, answer.producer_epoch)
            assert producer == Producer(before.id, before.epoch + 1)
        wait_until(lambda: describe_transaction(client, name).transaction_state == completed)  # noqa: B023
        # The answer was lost, and the request comes again.
        again = end(client, name, before, commit=commit, version=version)
        assert again.error_code == NONE
        if version >= 5:
            assert Producer(again.producer_id, again.producer_epoch) == producer
        other = end(client, name, before, commit=not commit, version=version)
        assert other.error_code == InvalidTxnState.code


def test_what_is_committed_is_visible_and_what_is_aborted_is_not(client: RawClient) -> None:
    create_topic(client, "visible")
    producer = init(client, "visible")
    expected = []
    for number, commit in enumerate((True, False, True, True, False)):
        assert set(add_partitions(client, "visible", producer, {"visible": [0]}, version=3).values()) == {
            NONE
        }
        value = b"value-%d" % number
        assert produce(client, "visible", "visible", producer, value, sequence=number, version=11) == NONE
        assert last_stable_offset(client, "visible") == 2 * number
        assert end(client, "visible", producer, commit=commit, version=4).error_code == NONE
        wait_until(lambda: last_stable_offset(client, "visible") == 2 * number + 2)  # noqa: B023
        expected += [value] if commit else []
    assert committed_values(client, "visible") == expected


def test_partitions_join_a_transaction_by_being_written_to(client: RawClient, name: str) -> None:
    create_topic(client, name)
    producer = init(client, name)
    for number in range(3):
        assert produce(client, name, name, producer) == NONE
        assert describe_transaction(client, name).topics[0].topic == name
        ended = end(client, name, producer, commit=number != 1)
        assert ended.error_code == NONE
        producer = Producer(ended.producer_id, ended.producer_epoch)
    wait_until(lambda: last_stable_offset(client, name) == 6)
    assert committed_values(client, name) == [b"value", b"value"]


def test_another_producer_aborts_what_is_open(client: RawClient, name: str) -> None:
    create_topic(client, name)
    zombie = init(client, name)

    assert produce(client, name, name, zombie) == NONE
    answer = ask_init(client, name)
    assert answer.error_code == ConcurrentTransactions.code
    producer = init(client, name)
    assert producer == Producer(zombie.id, zombie.epoch + 2)
    assert produce(client, name, name, zombie, sequence=1) == InvalidProducerEpoch.code
    assert end(client, name, zombie).error_code == ProducerFenced.code
    assert last_stable_offset(client, name) == 2
    assert committed_values(client, name) == []


def test_a_transaction_that_lasts_too_long_is_aborted(client: RawClient, name: str) -> None:
    create_topic(client, name)
    producer = init(client, name, timeout_ms=100)
    assert produce(client, name, name, producer) == NONE
    wait_until(lambda: describe_transaction(client, name).transaction_state == "CompleteAbort")
    assert last_stable_offset(client, name) == 2
    assert committed_values(client, name) == []
    assert end(client, name, producer).error_code == InvalidTxnState.code
    assert end(client, name, producer, version=4).error_code == ProducerFenced.code


def test_offsets_of_a_group_are_part_of_the_transaction(client: RawClient, name: str) -> None:
    wait_for_coordinator(client, name)
    producer = init(client, name)
    assert add_offsets(client, name, producer, name) == NONE
    offsets = {("topic", 0): 5}
    committed = commit_in_transaction(
        client,
        name,
        offsets,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transactional_id=name,
    )
    assert committed == dict.fromkeys(offsets, NONE)
    assert fetch_offsets(client, name, {"topic": [0]}) == {("topic", 0): -1}
    assert end(client, name, producer, version=4).error_code == NONE
    wait_until(lambda: describe_transaction(client, name).transaction_state == "CompleteCommit")
    assert fetch_offsets(client, name, {"topic": [0]}) == {("topic", 0): 5}


def test_partitions_that_are_deleted_need_no_markers(client: RawClient, name: str) -> None:
    create_topic(client, name)
    producer = init(client, name)
    add_partitions(client, name, producer, {name: [0], "topic": [0]})
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    assert client.ask("DeleteTopics", 6, request).responses[0].error_code == NONE
    assert end(client, name, producer).error_code == NONE
    wait_until(lambda: describe_transaction(client, name).transaction_state == "CompleteCommit")


def test_transactions_are_described(client: RawClient, name: str) -> None:
    unknown = describe_transaction(client, name)
    assert unknown.error_code == TransactionalIdNotFound.code
    assert describe_transaction(client, "").error_code == InvalidRequest.code
    producer = init(client, name, timeout_ms=12_345)
    empty = describe_transaction(client, name)
    assert (empty.error_code, empty.transaction_state, empty.topics) == (NONE, "Empty", [])
    assert Producer(empty.producer_id, empty.producer_epoch) == producer
    assert (empty.transaction_timeout_ms, empty.transaction_start_time_ms) == (12_345, -1)
    add_partitions(client, name, producer, {"topic": [2, 1]})
    ongoing = describe_transaction(client, name)
    assert (ongoing.transaction_state, ongoing.transaction_start_time_ms > 0) == ("Ongoing", True)
    assert [(topic.topic, topic.partitions) for topic in ongoing.topics] == [("topic", [1, 2])]
    request = DescribeTransactionsRequest(transactional_ids=[name, f"{name}-x"])
    both = client.ask("DescribeTransactions", 0, request).transaction_states
    assert [each.error_code for each in both] == [NONE, TransactionalIdNotFound.code]


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed(client: RawClient, name: str, version: int) -> None:
    def listed(**filters: object) -> set[str]:
        answer = list_transactions(client, version=version, **filters)  # type: ignore[arg-type]
        assert answer.error_code == NONE
        found = {each.transactional_id for each in answer.transaction_states}
        return {each for each in found if each.startswith(name)}

    empty, open_name = f"{name}-empty", f"{name}-open"
    empty_producer = init(client, empty)
    producer = init(client, open_name)
    add_partitions(client, open_name, producer, {"topic": [0]})
    assert listed() == {empty, open_name}
    assert listed(states=("Empty",)) == {empty}
    assert listed(states=("Ongoing", "Empty")) == {empty, open_name}
    assert listed(producer_ids=(producer.id,)) == {open_name}
    assert listed(producer_ids=(producer.id, empty_producer.id), states=("Empty",)) == {empty}
    answer = list_transactions(client, states=("Ongoing", "ongoing", "Nonsense"), version=version)
    assert sorted(answer.unknown_state_filters) == ["Nonsense", "ongoing"]
    assert open_name in {each.transactional_id for each in answer.transaction_states}
    assert listed(states=("Nonsense",)) == set()
    if version >= 1:
        # An empty one began at no time, which is long ago.
        assert listed(duration_ms=3_600_000) == {empty}
        assert listed(duration_ms=-1) == {empty, open_name}
    if version >= 2:
        assert listed(pattern=f"{name}-.*") == {empty, open_name}
        assert listed(pattern=f"{name}-op") == set()
        assert listed(pattern=".*open") == {open_name}
        assert listed(pattern="") == {empty, open_name}
        refused = list_transactions(client, pattern="(", version=version)
        assert refused.error_code == InvalidRegularExpression.code
    end(client, open_name, producer)


def test_nothing_is_coordinated_before_somebody_looks_for_a_coordinator(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", SETTINGS) as broker, broker.client() as client:
        assert ask_init(client, "id").error_code == NotCoordinator.code
        assert end(client, "id", NOBODY).error_code == NotCoordinator.code
        assert describe_transaction(client, "id").error_code == NotCoordinator.code
        assert add_offsets(client, "id", NOBODY, "group") == NotCoordinator.code
        listed = list_transactions(client)
        assert (listed.error_code, listed.transaction_states) == (NONE, [])
        assert init(client, None).epoch == 0


def test_a_topic_that_cannot_be_made_leaves_no_coordinator(tmp_path: Path) -> None:
    settings = {"transaction.state.log.replication.factor": "2", **SETTINGS}
    with RunningBroker(tmp_path / "data", settings) as broker, broker.client() as client:
        assert find_transaction(client, "id").error_code == CoordinatorNotAvailable.code
        assert find_transaction(client, "id", version=1).error_code == CoordinatorNotAvailable.code


def test_transactions_survive_the_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningBroker(data, SETTINGS) as broker, broker.client() as client:
        create_topic(client, "topic", 3)
        wait_for_transaction_coordinator(client)
        committed = init(client, "committed")
        add_partitions(client, "committed", committed, {"topic": [0]})
        end(client, "committed", committed)
        opened = init(client, "open")
        assert produce(client, "topic", "open", opened) == NONE
        last_id = init(client, None).id
    with RunningBroker(data, SETTINGS) as broker, broker.client() as client:
        wait_for_transaction_coordinator(client)
        again = end(client, "committed", committed)
        assert (again.error_code, again.producer_epoch) == (NONE, 1)
        assert describe_transaction(client, "open").transaction_state == "Ongoing"
        ended = end(client, "open", opened)
        assert ended.error_code == NONE
        # The first transaction has left its marker.
        wait_until(lambda: last_stable_offset(client, "topic") == 3)
        assert committed_values(client, "topic") == [b"value"]
        assert init(client, None).id > last_id


def test_producer_ids_of_a_directory_from_elsewhere_are_not_given_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningBroker(data, SETTINGS) as broker, broker.client() as client:
        wait_for_transaction_coordinator(client)
        for _ in range(5):
            init(client, None)
        used = init(client, "id")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(data, elsewhere)
    for file in elsewhere.glob("barnabas-store*"):
        file.unlink()
    with RunningBroker(elsewhere, SETTINGS) as broker, broker.client() as client:
        assert init(client, None).id > used.id
        wait_for_transaction_coordinator(client)
        assert init(client, "id") == Producer(used.id, 1)


def test_metrics_of_transactions(broker: RunningBroker, client: RawClient, name: str) -> None:
    producer = init(client, name)
    add_partitions(client, name, producer, {"topic": [0]})
    text = broker.server.broker.metrics.render()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(lines['barnabas_transactions{state="Ongoing"}']) >= 1
    channel = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    assert lines[f"{channel}unknowndestinationqueuesize"] == "0"
    assert lines[f"{channel}logappendretryqueuesize"] == "0"
    assert float(lines["kafka_server_transaction_coordinator_metrics_partition_load_time_max"]) >= 0
    assert float(lines["kafka_server_group_coordinator_metrics_partition_load_time_avg"]) >= 0
    end(client, name, producer)
