"""Other clients than producers for a host under fire: they commit offsets and run transactions."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections import Counter
from typing import Final

from barnabas.client.producer.producer import Producer
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from tests.waiting import Deadline

LEDGER: Final = "ledger"
LEDGER_PARTITIONS: Final = 3
GROUPS: Final = 4
PAUSE_S: Final = 0.05
# Every so many transactions, one is aborted.
ABORTED_EACH: Final = 4
WAIT_S: Final = 120
IMPATIENT: Final = {"request_timeout_ms": 5_000}


class HostClient:
    """One thread of load."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded_run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None:
            raise AssertionError(f"{self._thread.name} failed") from self._failure

    def _guarded_run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error

    @abstractmethod
    def _run(self) -> None: ...


class Committer(HostClient):
    """Commits offsets of several groups, counting up. A commit that failed may count or not."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__(broker, "commits")
        self._partition = TopicPartition(topic, 0)
        self._tried: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()

    def _run(self) -> None:
        number = 0
        with self._broker.admin(**IMPATIENT) as admin:
            while not self._is_over.wait(PAUSE_S):
                number += 1
                group = f"group-{number % GROUPS}"
                self._tried[group] = number
                with contextlib.suppress(KafkaError):
                    admin.alter_group_offsets(group, {self._partition: number})
                    self.confirmed[group] = number

    def check(self, confirmed: Counter[str]) -> None:
        """`confirmed` is from before now: later ones may be on their way."""
        with self._broker.admin() as admin:
            for group, number in confirmed.items():
                found = admin.list_group_offsets(group)[self._partition].offset
                assert number <= found <= self._tried[group], (group, number, found)


class Transactor(HostClient):
    """Writes its number to every partition of the ledger, in one transaction, and commits or aborts it."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, "transactions")
        self._number = 0
        self._committed: set[int] = set()
        self._aborted: set[int] = set()
        self._last = 0

    def _run(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(KafkaError), self._producer() as producer:
                producer.init_transactions()
                while not self._is_over.wait(PAUSE_S):
                    self._transact(producer)
        # One more that certainly counts: a reader that finds it has found all before it.
        deadline = Deadline(WAIT_S)
        while not self._last:
            deadline.check("no transaction is committed")
            with contextlib.suppress(KafkaError), self._producer() as producer:
                producer.init_transactions()
                while self._number % ABORTED_EACH:
                    self._number += 1
                self._last = self._transact(producer)

    def _producer(self) -> Producer:
        return self._broker.producer(transactional_id="ledger", delivery_timeout_ms=10_000, **IMPATIENT)

    def _transact(self, producer: Producer) -> int:
        self._number += 1
        number = self._number
        producer.begin_transaction()
        for partition in range(LEDGER_PARTITIONS):
            producer.send(LEDGER, b"%d" % number, partition=partition)
        if number % ABORTED_EACH == 0:
            # Whatever comes of the request, nothing has asked for a commit.
            self._aborted.add(number)
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            self._committed.add(number)
        return number

    def check(self) -> None:
        """After `stop`: each transaction is there once and whole, or not at all."""
        found: list[Counter[int]] = [Counter() for _ in range(LEDGER_PARTITIONS)]
        deadline = Deadline(WAIT_S)
        with self._broker.consumer(LEDGER, isolation_level="read_committed") as consumer:
            while not all(numbers[self._last] for numbers in found):
                deadline.check(f"the last transaction, {self._last}, is not there")
                for record in consumer.poll():
                    found[record.partition][int(record.value or b"")] += 1
        assert found[0] == found[1] == found[2], "a transaction is there in part"
        assert set(found[0].values()) == {1}, "a transaction is there twice"
        assert self._committed <= found[0].keys(), "a committed transaction is lost"
        assert self._aborted.isdisjoint(found[0]), "an aborted transaction can be read"
        assert len(self._committed) > 1, "there was no load"
