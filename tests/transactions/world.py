"""A coordinator, three partitions with real logs, and producers that lose answers, come late, stall, crash and return.

Whatever is under way is a delivery that happens at some time or never; all of it is decided by a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionAbortable,
)
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.log.producers.state import NO_GUARD, ProducerSettings
from barnabas.model import NO_PRODUCER_EPOCH, ProducerEpoch, TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.control import parse_end_txn_marker
from barnabas.records.layout import ControlRecordType
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import iterate_batches
from barnabas.transactions.coordinator import TransactionCoordinator
from barnabas.transactions.markers import Markers
from barnabas.transactions.records import TransactionRecord
from barnabas.transactions.settings import TransactionSettings
from barnabas.transactions.transaction import AT_REST, LAST_PRODUCER_EPOCH
from barnabas.transactions.transaction import Transaction as KnownTransaction
from tests.log.partitions import LaterScheduler, batch
from tests.log.simulated import SimulatedFileSystem
from tests.transactions.shell import Answer, ProducerIdSource, Shell, error_of

PARTITIONS: Final = tuple(TopicPartition("topic", index) for index in range(3))
IDS: Final = ("a", "b", "c")
TIMEOUT_MS: Final = 30_000
# So many steps a client waits for an answer before it sends the request again.
PATIENCE: Final = 6
SETTLING_ROUNDS_MAX: Final = 400

_AGAIN: Final = (ConcurrentTransactions, CoordinatorNotAvailable)
# The transaction is lost; its producer may abort it and go on.
_ABORTABLE: Final = (InvalidProducerEpoch, InvalidTxnState, TransactionAbortable, OutOfOrderSequenceNumber)
_FATAL: Final = (ProducerFenced, InvalidProducerIdMapping)

Script = Generator[None, None, None]


class Transaction:
    """What a client wrote in one transaction, and what it knows of the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledged: list[bytes] = []
        # True and False if it is known, None if only its producer's coordinator knows.
        self.is_committed: bool | None = False

    def value(self, number: int) -> bytes:
        return f"{self.name}:{number}".encode()


class Sent(NamedTuple):
    markers: Markers
    coordinator_epoch: int
    shell: Shell


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.producer_ids = ProducerIdSource()
        settings = TransactionSettings(
            transactional_id_expiration_ms=5 * TIMEOUT_MS, remove_expired_interval_ms=TIMEOUT_MS
        )
        self.shell = Shell(
            settings,
            clock=self.clock,
            log=self._first_log() if self.happens(0.3) else b"",
            producer_ids=self.producer_ids,
            holds_markers=True,
        )
        self.coordinator_epoch = 0
        self.logs = {partition: self._open(partition) for partition in PARTITIONS}
        # The first offset of each producer's open transaction.
        self.open: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in PARTITIONS}
        self.deliveries: list[Callable[[], None]] = []
        self.transactions: dict[str, Transaction] = {}
        self.clients = [self.new_client() for _ in IDS]

    def _first_log(self) -> bytes:
        """Ids whose producers are near their last epoch."""
        builder = BatchBuilder()
        for transactional_id in IDS:
            known = KnownTransaction(
                producer_id=self.producer_ids(),
                producer_epoch=ProducerEpoch(LAST_PRODUCER_EPOCH - self.rng.randrange(6)),
                timeout_ms=TIMEOUT_MS,
                last_update_timestamp=TimestampMs(self.clock.now_ms()),
            )
            record = TransactionRecord(transactional_id, known)
            builder.append(TimestampMs(self.clock.now_ms()), record.key_bytes(), record.value_bytes())
        return builder.build()

    def _open(self, partition: TopicPartition) -> PartitionLog:
        return PartitionLog.open(
            f"/data/{partition}",
            environment=LogEnvironment(
                fs=SimulatedFileSystem(self.clock),
                clock=self.clock,
                scheduler=LaterScheduler(),
                producer_settings=ProducerSettings(verifies_transactions=True),
            ),
            config=LogConfig(),
        )

    def close(self) -> None:
        for log in self.logs.values():
            log.close()

    def new_client(self, transactional_id: str | None = None) -> Client:
        return Client(self, transactional_id or self.rng.choice(IDS), version=self.rng.choice((0, 2, 2)))

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability

    def step(self) -> None:
        shell = self.shell
        chance = self.rng.random()
        if chance < 0.65:
            self._step_client()
        elif chance < 0.85:
            self._deliver()
        elif chance < 0.92:
            if shell.uncommitted:
                shell.commit_next()
        elif chance < 0.94:
            shell.holds_commits = not shell.holds_commits
        elif chance < 0.96:
            shell.append_error = NotEnoughReplicas() if self.happens(0.3) else None
        elif chance < 0.97:
            self.crash_coordinator()
        elif chance < 0.997:
            shell.advance_ms(self.rng.choice((1, 20, 200, 2_000)))
        else:
            shell.advance_ms(self.rng.choice((TIMEOUT_MS, 3 * TIMEOUT_MS, 8 * TIMEOUT_MS)))
        self.take_markers()

    def _step_client(self) -> None:
        index = self.rng.randrange(len(self.clients))
        client = self.clients[index]
        client.step()
        if client.is_dead or self.happens(0.005):
            is_same_id = self.happens(0.8)
            self.clients[index] = self.new_client(client.transactional_id if is_same_id else None)

    def _deliver(self) -> None:
        if self.deliveries:
            self.deliveries.pop(self.rng.randrange(len(self.deliveries)))()

    def later(self, action: Callable[[], None]) -> None:
        self.deliveries.append(action)

    def crash_coordinator(self) -> None:
        self.coordinator_epoch += 1
        self.check_committed()
        self.shell = self.shell.reloaded(holds_markers=True, loses_uncommitted=self.happens(0.5))

    def check_committed(self) -> None:
        """What the coordinator shows is what another one shows that loads what is committed."""
        shell = self.shell
        twin = TransactionCoordinator(shell.settings, shell.producer_ids)
        for header, records in iterate_batches(bytes(shell.log[: shell.committed_bytes])):
            twin.replay(header, records)
        assert shown(shell.coordinator) == shown(twin)

    def take_markers(self) -> None:
        while self.shell.sent:
            sent = Sent(self.shell.sent.popleft(), self.coordinator_epoch, self.shell)
            self.later(partial(self._deliver_markers, sent))

    def _deliver_markers(self, sent: Sent) -> None:
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition in sent.markers.partitions:
            if self.happens(0.1):
                results[partition] = NotLeaderOrFollower()
                continue
            try:
                self._write_marker(partition, sent)
                results[partition] = None
            except KafkaError as error:
                results[partition] = error
        # In version 0 nothing tells a marker that comes again from the end of the next transaction.
        if sent.markers.version == 2 and self.happens(0.2):
            self.later(partial(self._deliver_markers, sent))
        if sent.shell is self.shell and not self.happens(0.05):
            self.shell.carry_out(
                self.shell.coordinator.markers_written(sent.markers, results, self.shell.now_ms)
            )
        elif sent.shell is self.shell:
            # The answer comes late.
            self.later(partial(self._results_arrive, sent, results))

    def _results_arrive(self, sent: Sent, results: dict[TopicPartition, KafkaError | None]) -> None:
        if sent.shell is self.shell:
            self.shell.carry_out(
                self.shell.coordinator.markers_written(sent.markers, results, self.shell.now_ms)
            )

    def _write_marker(self, partition: TopicPartition, sent: Sent) -> None:
        markers = sent.markers
        log = self.logs[partition]
        log.append_as_leader(
            end_transaction_marker(
                control_type=ControlRecordType.COMMIT if markers.is_commit else ControlRecordType.ABORT,
                timestamp=TimestampMs(self.clock.now_ms()),
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                coordinator_epoch=sent.coordinator_epoch,
            ),
            leader_epoch=0,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=markers.version,
        )
        log.advance_high_watermark(log.log_end_offset)
        self.open[partition].pop(markers.producer_id, None)

    def produce(self, write: Write, answer: Answer[KafkaError | None]) -> None:
        """The broker's part: the coordinator is asked before the first batch of a transaction is appended."""
        try:
            guard = self.logs[write.partition].start_verification(
                write.producer[0], write.sequence, write.producer[1], bumps_epochs=write.version == 2
            )
        except KafkaError as error:
            answer(error)
            return
        verified = partial(self._verified, write, guard, answer)
        if guard == NO_GUARD:
            verified(None)
        elif write.version == 2:
            asked = self.shell.ask_add(
                write.producer, write.partition, version=2, transactional_id=write.transactional_id
            )
            self._when_there(asked, verified)
        else:
            verified(
                self.shell.verify(write.producer, [write.partition], write.transactional_id)[write.partition]
            )

    def _when_there(self, asked: Answer[Any], then: Callable[[Any], None]) -> None:
        if asked.is_there:
            then(asked.value)
        else:
            asked.then = then

    def _verified(
        self, write: Write, guard: int, answer: Answer[KafkaError | None], error: KafkaError | None
    ) -> None:
        if error is not None:
            answer(error)
        elif self.happens(0.2):
            self.later(partial(self._append, write, guard, answer))
        else:
            self._append(write, guard, answer)

    def _append(self, write: Write, guard: int, answer: Answer[KafkaError | None]) -> None:
        log = self.logs[write.partition]
        data = batch(
            write.value,
            producer_id=write.producer[0],
            producer_epoch=write.producer[1],
            sequence=write.sequence,
            transactional=True,
            timestamp=self.clock.now_ms(),
        )
        try:
            info = log.append_as_leader(data, leader_epoch=0, verification_guard=guard)
        except KafkaError as error:
            answer(error)
            return
        if not info.is_duplicate:
            self.open[write.partition].setdefault(write.producer[0], int(info.first_offset))
        log.advance_high_watermark(log.log_end_offset)
        answer(None)

    def check(self) -> None:
        for partition, log in self.logs.items():
            expected = min(self.open[partition].values(), default=log.log_end_offset)
            assert log.last_stable_offset == expected
        for entry in self.shell.coordinator:
            assert entry.transaction.state in AT_REST or entry.transaction.producer_epoch >= 0

    def settle(self) -> None:
        """Nothing fails any more, and time passes."""
        self.clients.clear()
        self.shell.append_error = None
        self.shell.holds_commits = False
        self.shell.commit()
        for _ in range(SETTLING_ROUNDS_MAX):
            self.take_markers()
            while self.deliveries:
                self._deliver()
                self.take_markers()
            self.shell.advance_ms(TIMEOUT_MS // 3)
            is_at_rest = all(
                entry.transaction.state in AT_REST and entry.pending is None
                for entry in self.shell.coordinator
            )
            if is_at_rest and not self.shell.sent and not any(self.open.values()):
                return
        raise AssertionError("a transaction never comes to its end")

    def visible(self, partition: TopicPartition) -> Iterator[bytes]:
        """What a consumer of committed records gets to see."""
        log = self.logs[partition]
        offset = 0
        while True:
            found = log.read(offset, 1 << 20, Isolation.TXN_COMMITTED, min_one_message=True)
            if found.records is None:
                return
            assert found.aborted_transactions is not None
            starts = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions)
            aborted: set[int] = set()
            for header, records in iterate_batches(found.records.read()):
                offset = int(header.next_offset)
                while starts and starts[0][0] <= header.last_offset:
                    aborted.add(starts.pop(0)[1])
                if header.is_control:
                    marker = parse_end_txn_marker(records[0])
                    if marker is not None and marker.control_type is ControlRecordType.ABORT:
                        aborted.discard(header.producer_id)
                elif header.producer_id not in aborted:
                    for record in records:
                        assert record.value is not None
                        yield record.value

    def check_visible(self) -> None:
        seen = [value for partition in PARTITIONS for value in self.visible(partition)]
        assert len(seen) == len(set(seen)), "a record is there twice"
        by_transaction: dict[str, set[bytes]] = {}
        for value in seen:
            by_transaction.setdefault(value.decode().rpartition(":")[0], set()).add(value)
        for name, transaction in self.transactions.items():
            visible = by_transaction.get(name, set())
            if transaction.is_committed is None:
                assert visible in (set(), set(transaction.acknowledged)), name
            elif transaction.is_committed:
                assert visible == set(transaction.acknowledged), name
            else:
                assert not visible, name
        for log in self.logs.values():
            assert log.last_stable_offset == log.log_end_offset


class Write(NamedTuple):
    transactional_id: str
    version: int
    producer: tuple[int, int]
    partition: TopicPartition
    sequence: int
    value: bytes


class Client:
    """A producer as its program sees it: it commits only what has been acknowledged."""

    def __init__(self, world: World, transactional_id: str, *, version: int) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.version = version
        self.name = f"{transactional_id}-{len(world.transactions)}-{world.rng.getrandbits(32)}"
        self.producer = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.is_dead = False
        self._script = self._run()

    def step(self) -> None:
        try:
            next(self._script)
        except StopIteration:
            self.is_dead = True

    def _run(self) -> Script:
        if not (yield from self._init(None)):
            return
        while True:
            transaction = Transaction(f"{self.name}-{len(self.world.transactions)}")
            self.world.transactions[transaction.name] = transaction
            is_good = yield from self._write_some(transaction)
            if is_good is None:
                return
            is_commit = is_good and self.world.happens(0.7)
            outcome = yield from self._end(transaction, is_commit)
            if outcome is None:
                return
            needs_epoch = not is_good or not outcome or self.world.happens(0.05)
            if needs_epoch and not (yield from self._init(self.producer)):
                return

    def _call(self, send: Callable[[], Answer[Any]]) -> Generator[None, None, tuple[Answer[Any], int]]:
        """Sends until there is an answer that is not to try again; returns it with how often that was."""
        for attempt in range(1, 10_000):
            answer = send()
            is_lost = self.world.happens(0.1)
            for _ in range(PATIENCE):
                yield
                if answer.is_there and not is_lost:
                    break
            else:
                continue
            error = error_of(answer)
            if error is None or not issubclass(error, _AGAIN):
                return answer, attempt
            yield
        raise AssertionError("there is no end to trying again")

    def _init(self, expected: tuple[int, int] | None) -> Generator[None, None, bool]:
        world = self.world

        def send() -> Answer[Any]:
            return world.shell.ask_init(
                expected, transactional_id=self.transactional_id, timeout_ms=TIMEOUT_MS
            )

        answer, _ = yield from self._call(send)
        if error_of(answer) is not None:
            return False
        self.producer = (answer.value.producer_id, answer.value.producer_epoch)
        self.sequences.clear()
        return True

    def _write_some(self, transaction: Transaction) -> Generator[None, None, bool | None]:
        """Whether all was acknowledged; None if somebody else has taken over."""
        for number in range(self.world.rng.randrange(5)):
            partition = self.world.rng.choice(PARTITIONS)
            if self.version == 0:
                error = yield from self._add(partition)
                if error is not None:
                    return None if issubclass(error, _FATAL) else False
            sequence = self.sequences.get(partition, 0)
            write = Write(
                self.transactional_id,
                self.version,
                self.producer,
                partition,
                sequence,
                transaction.value(number),
            )
            if self.world.happens(0.05):
                # It is on its way for so long that the client gives up on it.
                self.world.later(partial(self.world.produce, write, Answer()))
                return False
            answer, _ = yield from self._call(partial(self._produce, write))
            error = error_of(answer)
            if error is not None:
                return None if issubclass(error, _FATAL) else False
            self.sequences[partition] = sequence + 1
            transaction.acknowledged.append(write.value)
        return True

    def _produce(self, write: Write) -> Answer[KafkaError | None]:
        answer: Answer[KafkaError | None] = Answer()
        self.world.produce(write, answer)
        return answer

    def _add(self, partition: TopicPartition) -> Generator[None, None, type[KafkaError] | None]:
        def send() -> Answer[Any]:
            return self.world.shell.ask_add(self.producer, partition, transactional_id=self.transactional_id)

        answer, _ = yield from self._call(send)
        return error_of(answer)

    def _end(self, transaction: Transaction, is_commit: bool) -> Generator[None, None, bool | None]:
        """Whether it ended as it should; None if somebody else has taken over."""
        world, producer = self.world, self.producer

        def send() -> Answer[Any]:
            return world.shell.ask_end(
                producer, commit=is_commit, version=self.version, transactional_id=self.transactional_id
            )

        if self.version == 0 and not transaction.acknowledged and not is_commit:
            return True
        if is_commit:
            # Until there is an answer only the coordinator knows.
            transaction.is_committed = None
        answer, attempts = yield from self._call(send)
        if self.version == 2 and world.happens(0.2):
            # The same request is still on its way, and comes when nobody thinks of it any more.
            world.later(partial(_forget, send))
        error = error_of(answer)
        if error is None:
            transaction.is_committed = is_commit
            if self.version == 2:
                self.producer = (answer.value.producer_id, answer.value.producer_epoch)
                self.sequences.clear()
            return True
        if attempts == 1:
            transaction.is_committed = False
        return None if issubclass(error, _FATAL) else False


def _forget(send: Callable[[], Answer[Any]]) -> None:
    """Sends a request whose answer nobody waits for."""
    send()


def shown(coordinator: TransactionCoordinator) -> dict[str, KnownTransaction]:
    """Each transactional id, with what is stored of it: the epoch before the current one is not."""
    return {
        entry.transactional_id: replace(entry.transaction, last_producer_epoch=NO_PRODUCER_EPOCH)
        for entry in coordinator
    }
