"""Transactions of the producer, in both versions of the protocol, on our broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

import barnabas
from barnabas import aio
from barnabas.client.failures import TransactionMisuse
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.transactions import TransactionManager
from barnabas.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
)
from barnabas.model import TopicPartition
from tests.client.consumer_servers import OURS, SERVERS, Server, numbered, running
from tests.client.proxy import Proxy, seeded
from tests.client.reading import known, read_values
from tests.clients.broker_process import BrokerProcess
from tests.peers.kafka_peer import V3
from tests.waiting import Deadline, wait_until

WAIT_S = 60


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("transactions")) as started:
        yield started


@pytest.fixture(params=["version 1", "version 2"], autouse=True)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The protocol that the producer speaks; version 2 where the cluster has it."""
    found: str = request.param
    if found == "version 1":
        monkeypatch.setattr(TransactionManager, "_finds_v2", lambda manager: False)
    return found


def transactional(server: Server, topic: str, **others: object) -> Producer:
    return Producer(
        bootstrap_servers=server.address,
        transactional_id=f"id-of-{topic}",
        retry_backoff_ms=10,
        **others,
    )


def committed(server: Server, topic: str, partitions: int = 1) -> list[list[bytes | None]]:
    return read_values(server.process, topic, partitions, isolation_level=1)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(server: Server) -> None:
    topic = server.topic(2)
    with transactional(server, topic) as producer:
        with producer.transaction():
            for number in range(100):
                producer.send(topic, b"%d" % number, partition=number % 2)
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"aborted", partition=0).result(WAIT_S)
            producer.send(topic, b"never sent", partition=1)
            raise ZeroDivisionError
        with producer.transaction():
            producer.send_many(topic, numbered(10, 100), partition=0)
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.abort_transaction()
    assert committed(server, topic, 2) == [
        [*(b"%d" % number for number in range(0, 100, 2)), *numbered(10, 100)],
        [b"%d" % number for number in range(1, 100, 2)],
    ]
    assert b"aborted" in read_values(server.process, topic)[0]


def test_the_version_is_that_of_the_cluster(server: Server, version: str) -> None:
    topic = server.topic()
    with transactional(server, topic) as producer:
        epochs = []
        for _ in range(3):
            with producer.transaction():
                producer.send(topic, b"v")
            transactions = producer._core.transactions
            assert transactions is not None
            epochs.append(transactions.producer_epoch)
        has_v2 = version == "version 2" and server.kind != "3.9.1"
        assert epochs == ([1, 2, 3] if has_v2 else [0, 0, 0])


def test_offsets_are_committed_with_the_transaction(server: Server) -> None:
    topic = server.topic()
    group = f"group-of-{topic}"
    tp = TopicPartition(topic, 0)
    server.produce(topic, numbered(10))
    with (
        transactional(server, topic) as producer,
        server.consumer(group_id=group, enable_auto_commit=False) as consumer,
    ):
        consumer.subscribe([topic])
        taken = 0
        while taken < 10:
            taken += len(consumer.poll(100))
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.send_offsets_to_transaction({tp: 3}, consumer.group_metadata())
            raise ZeroDivisionError
        assert consumer.committed(tp)[tp] is None
        with producer.transaction():
            producer.send(topic, b"with offsets")
            producer.send_offsets_to_transaction({tp: consumer.position(tp)}, consumer.group_metadata())
        # The transaction is ended in the group a little after it is committed.
        found = wait_until(lambda: consumer.committed(tp)[tp])
        assert found is not None
        assert found.offset == 10


def test_a_second_producer_fences_the_first(server: Server) -> None:
    topic = server.topic()
    with transactional(server, topic) as first, transactional(server, topic) as second:
        first.begin_transaction()
        first.send(topic, b"of the first").result(WAIT_S)
        second.init_transactions()
        with second.transaction():
            second.send(topic, b"of the second")
        with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
            first.commit_transaction()
        with pytest.raises((ProducerFenced, InvalidProducerEpoch), match="another"):
            first.send(topic, b"late")
    assert committed(server, topic) == [[b"of the second"]]


def test_calls_out_of_place(server: Server) -> None:
    topic = server.topic()
    with transactional(server, topic) as producer:
        with pytest.raises(TransactionMisuse, match="within a transaction"):
            producer.send(topic, b"v")
        with pytest.raises(TransactionMisuse, match="init_transactions"):
            producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(TransactionMisuse, match="in a transaction"):
            producer.begin_transaction()
        with pytest.raises(TransactionMisuse, match="in a transaction"):
            producer.init_transactions()
        with pytest.raises(TransactionMisuse, match="a group is named"):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, 7)
        producer.send(topic, b"v")
        producer.commit_transaction()
        with pytest.raises(TransactionMisuse, match="ready"):
            producer.abort_transaction()
    assert committed(server, topic) == [[b"v"]]


def test_a_record_that_fails_fails_the_transaction(server: Server) -> None:
    topic = server.topic(max_message_bytes="2000")
    with transactional(server, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"before").result(WAIT_S)
        assert producer.send(topic, bytes(5_000)).exception(WAIT_S) is not None
        with pytest.raises(KafkaError, match="abort"):
            producer.send(topic, b"v")
        with pytest.raises(KafkaError, match="abort_transaction"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"after")
    assert committed(server, topic) == [[b"after"]]


def test_close_aborts_an_open_transaction(server: Server) -> None:
    topic = server.topic()
    # No time-out of the broker's ends it instead.
    producer = transactional(server, topic, transaction_timeout_ms=600_000)
    producer.begin_transaction()
    producer.send(topic, b"v").result(WAIT_S)
    producer.close()
    server.produce(topic, [b"w"])
    assert committed(server, topic) == [[b"w"]]


def test_asyncio(server: Server) -> None:
    topic = server.topic()

    async def run() -> None:
        async with (
            asyncio.timeout(WAIT_S),
            aio.Producer(bootstrap_servers=server.address, transactional_id=f"id-of-{topic}") as producer,
        ):
            async with producer.transaction():
                await producer.send(topic, b"1")
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"2")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send_many(topic, [b"3", b"4"])
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, f"group-of-{topic}")

    asyncio.run(run())
    assert committed(server, topic) == [[b"1", b"3", b"4"]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_connections_cut_at_any_byte(
    tmp_path_factory: pytest.TempPathFactory, server: Server, seed: int
) -> None:
    """Every transaction that was said to be committed is there, whole and once; of the others, all or nothing."""
    if server.kind != OURS:
        pytest.skip("a broker behind a proxy is ours")
    with Proxy(planner=seeded(seed, longest=20_000, share=0.7)) as proxy:
        broker = BrokerProcess(
            tmp_path_factory.mktemp("cut") / "data",
            {
                "advertised.listeners": f"PLAINTEXT://{proxy.address}",
                "num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            },
        )
        proxy.target_port = broker.port
        with broker:
            done: list[int] = []
            with Producer(
                bootstrap_servers=proxy.address,
                transactional_id="cut",
                retry_backoff_ms=5,
                retry_backoff_max_ms=50,
                reconnect_backoff_ms=5,
                reconnect_backoff_max_ms=50,
            ) as producer:
                for number in range(40):
                    with producer.transaction():
                        for part in range(5):
                            producer.send("t", b"%d %d" % (number, part))
                    done.append(number)
            [values] = read_values(broker, "t", isolation_level=1)
    assert proxy.cuts > 0
    assert values == [b"%d %d" % (number, part) for number in done for part in range(5)]


@pytest.mark.slow
def test_records_that_are_given_up_leave_the_next_transaction_alone(
    tmp_path_factory: pytest.TempPathFactory, server: Server
) -> None:
    """A batch was sent and never acknowledged in time: the transaction is aborted, and the next one goes on."""
    if server.kind != OURS:
        pytest.skip("a broker behind a proxy is ours")
    with Proxy() as proxy:
        broker = BrokerProcess(
            tmp_path_factory.mktemp("given-up") / "data",
            {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "num.partitions": "1"},
        )
        proxy.target_port = broker.port
        with (
            broker,
            Producer(
                bootstrap_servers=proxy.address,
                transactional_id="given-up",
                retry_backoff_ms=5,
                linger_ms=0,
                request_timeout_ms=500,
                delivery_timeout_ms=700,
            ) as producer,
        ):
            known(producer, "t")
            producer.begin_transaction()
            proxy.hold()
            assert producer.send("t", b"late").exception(WAIT_S) is not None
            proxy.release()
            with pytest.raises(KafkaError):
                producer.commit_transaction()
            producer.abort_transaction()
            deadline = Deadline()
            while True:
                deadline.check("a transaction in time")
                producer.begin_transaction()
                # On a busy machine even this may come too late.
                if producer.send("t", b"after").exception(WAIT_S) is None:
                    producer.commit_transaction()
                    break
                producer.abort_transaction()
            assert read_values(broker, "t", isolation_level=1) == [[b"after"]]


def test_a_transaction_is_shared_by_producers(server: Server) -> None:
    topic = server.topic(3)
    with (
        transactional(server, topic) as owner,
        transactional(server, topic) as left,
        transactional(server, topic) as right,
    ):
        for number, ends in enumerate((owner.abort_transaction, owner.commit_transaction) * 2):
            owner.init_transactions()
            owner.begin_transaction()
            shared = owner.share_transaction()
            left.join_transaction(shared)
            right.join_transaction(shared)
            left.send_many(topic, [b"left of %d" % number] * 10, partition=0)
            right.send(topic, b"right of %d" % number, partition=1)
            owner.send(topic, b"owner of %d" % number, partition=2)
            left.leave_transaction()
            right.leave_transaction()
            # The same producer may come back to the same transaction: it goes on where it was.
            left.join_transaction(shared)
            left.send(topic, b"left again", partition=0)
            left.leave_transaction()
            ends()
    assert committed(server, topic, 3) == [
        [*[b"left of 1"] * 10, b"left again", *[b"left of 3"] * 10, b"left again"],
        [b"right of 1", b"right of 3"],
        [b"owner of 1", b"owner of 3"],
    ]


@pytest.mark.slow
def test_an_abort_waits_for_partitions_that_are_being_added(
    tmp_path_factory: pytest.TempPathFactory, server: Server, version: str
) -> None:
    """Partitions that are added behind the end of a transaction begin another, which nobody ends."""
    if server.kind != OURS or version != "version 1":
        pytest.skip("a broker behind a proxy is ours; version 2 adds partitions by writing to them")
    with Proxy() as proxy:
        broker = BrokerProcess(
            tmp_path_factory.mktemp("adding") / "data",
            {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "num.partitions": "1"},
        )
        proxy.target_port = broker.port
        with (
            broker,
            Producer(bootstrap_servers=proxy.address, transactional_id="adding") as producer,
            barnabas.Admin(bootstrap_servers=proxy.address) as admin,
        ):
            with producer.transaction():
                producer.send("t", b"before")
            transactions = producer._core.transactions
            assert transactions is not None
            producer.begin_transaction()
            proxy.hold()
            producer.send("t", b"aborted")
            wait_until(lambda: transactions._task is not None)
            aborting = threading.Thread(target=producer.abort_transaction)
            aborting.start()
            # Nothing passes, so nothing can be ended: an abort that is over by now has left the adding alone.
            aborting.join(0.5)
            assert aborting.is_alive()
            proxy.release()
            aborting.join(WAIT_S)
            assert not aborting.is_alive()
            deadline = Deadline()
            while (state := admin.describe_transactions(["adding"])["adding"].state) != "CompleteAbort":
                assert state == "PrepareAbort"
                deadline.check(state)
                time.sleep(0.01)
            assert read_values(broker, "t", isolation_level=1) == [[b"before"]]


def test_a_shared_transaction_that_nobody_wrote_to_is_aborted(server: Server) -> None:
    topic = server.topic()
    with transactional(server, topic) as owner:
        owner.begin_transaction()
        owner.share_transaction()
        owner.abort_transaction()
        owner.init_transactions()
        with owner.transaction():
            owner.send(topic, b"v")
    assert committed(server, topic) == [[b"v"]]


def test_who_joined_does_not_end_the_transaction(server: Server) -> None:
    topic = server.topic()
    with transactional(server, topic) as owner:
        owner.begin_transaction()
        shared = owner.share_transaction()
        with transactional(server, topic) as joined:
            with pytest.raises(TransactionMisuse, match="init_transactions"):
                joined.leave_transaction()
            joined.join_transaction(shared)
            joined.send(topic, b"v").result(WAIT_S)
            for call in (joined.commit_transaction, joined.abort_transaction, joined.init_transactions):
                with pytest.raises(TransactionMisuse, match="leave_transaction"):
                    call()
        with pytest.raises(TransactionMisuse, match="commit or abort"):
            owner.leave_transaction()
        owner.commit_transaction()
    assert committed(server, topic) == [[b"v"]]


def test_an_epoch_that_is_raised_tells_of_another_owner(server: Server) -> None:
    topic = server.topic()
    with transactional(server, topic) as first, transactional(server, topic) as joined:
        first.init_transactions()
        first.begin_transaction()
        shared = first.share_transaction()
        joined.join_transaction(shared)
        joined.send(topic, b"of the first").result(WAIT_S)
        with transactional(server, topic) as second:
            second.init_transactions()
            with second.transaction():
                second.send(topic, b"of the second")
            joined.send(topic, b"late")
            # 3.9.1 was once seen to answer INVALID_TXN_STATE here. No other broker may.
            fenced = (ProducerFenced, InvalidProducerEpoch)
            with pytest.raises((*fenced, InvalidTxnState) if server.kind == V3 else fenced):
                joined.leave_transaction()
            with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
                first.abort_transaction()
            with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
                first.init_transactions()
            with second.transaction():
                second.send(topic, b"and again")
    assert committed(server, topic) == [[b"of the second", b"and again"]]


@pytest.mark.slow
def test_an_abort_ends_what_offsets_that_were_added_too_late_have_begun(
    tmp_path_factory: pytest.TempPathFactory, server: Server, version: str
) -> None:
    if server.kind != OURS or version != "version 1":
        pytest.skip("a broker behind a proxy is ours; version 2 adds offsets by committing them")
    with Proxy() as proxy:
        broker = BrokerProcess(
            tmp_path_factory.mktemp("adding-offsets") / "data",
            {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "num.partitions": "1"},
        )
        proxy.target_port = broker.port
        with (
            broker,
            Producer(
                bootstrap_servers=proxy.address, transactional_id="offsets", retry_backoff_ms=5
            ) as producer,
            barnabas.Admin(bootstrap_servers=proxy.address) as admin,
        ):
            producer.begin_transaction()
            proxy.hold()
            with pytest.raises(RequestTimedOut):
                producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g", timeout_ms=200)
            proxy.release()
            producer.abort_transaction()
            # The broker has added the offsets by now, and has ended what that began.
            found = admin.describe_transactions("offsets")["offsets"]
            assert found.state != "Ongoing"
            assert found.producer_epoch > 0
            with producer.transaction():
                producer.send("t", b"v")
            assert read_values(broker, "t", isolation_level=1) == [[b"v"]]


@pytest.mark.slow
def test_close_sees_a_commit_through_that_has_timed_out(
    tmp_path_factory: pytest.TempPathFactory, server: Server
) -> None:
    if server.kind != OURS:
        pytest.skip("a broker behind a proxy is ours")
    with Proxy() as proxy:
        broker = BrokerProcess(
            tmp_path_factory.mktemp("committing") / "data",
            {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "num.partitions": "1"},
        )
        proxy.target_port = broker.port
        with broker:
            producer = Producer(
                bootstrap_servers=proxy.address,
                transactional_id="committing",
                transaction_timeout_ms=600_000,
                retry_backoff_ms=5,
            )
            producer.begin_transaction()
            producer.send("t", b"1").result(WAIT_S)
            proxy.hold()
            # The commit waits for this record, so the end of the transaction is not asked for yet.
            producer.send("t", b"2")
            with pytest.raises(RequestTimedOut, match="records were not acknowledged"):
                producer.commit_transaction(timeout_ms=200)
            proxy.release()
            producer.close()
            assert read_values(broker, "t", isolation_level=1) == [[b"1", b"2"]]
