"""A client in a process of its own that writes down what it does, until it is told to stop or is killed.

    python -m tests.histories.client PLAN

PLAN is a Plan as JSON. Whatever a client library asks its user to do after an error (try again, abort, begin anew with
another instance) is done here; no value is ever sent again by us.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.histories.history import (
    READ_COMMITTED,
    UNKNOWN_OFFSET,
    Acknowledged,
    Ended,
    Ending,
    GaveUp,
    OffsetsCommitted,
    Polled,
    Position,
    Positioned,
    Recorder,
    Sent,
    now_s,
    partition_name,
)

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

# How long an operation is tried over a broker's absence; whoever waits for the client has a bound of its own.
INSIST_S: Final = 90
# How a client ends whose library has let it down; it is started again like one that was killed.
EXIT_HUNG: Final = 70
ABORTED_SHARE: Final = 0.3
RECORDS_A_TRANSACTION_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`name` is the same for all incarnations of a client and is its transactional id; `incarnation` counts them."""

    role: str
    name: str
    incarnation: int
    address: str
    path: str
    seed: int
    topic: str
    partitions: int
    to_topic: str = ""
    group: str = ""
    isolation: str = READ_COMMITTED
    # The load is to find faults, not to fill a disk: a rest after each send or poll.
    pause_s: float = 0.01
    # librdkafka's abort fails for good while the first records of the transaction are under way (librdkafka #4849).
    flushes_before_abort: bool = False
    # Settings of the client library, by the library's own names.
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        return f"{self.name}.{self.incarnation}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Client:
    """What all clients share: the plan, what is written down, numbers for values, and the end."""

    def __init__(self, plan: Plan, recorder: Recorder, is_over: threading.Event) -> None:
        self.plan = plan
        self.recorder = recorder
        self.rng = random.Random(f"{plan.seed} {plan.instance}")
        self._is_over = is_over
        self._sent = 0
        self._transactions = 0
        self.consumers = 0

    def settings(self, **settings: Any) -> dict[str, Any]:
        """Settings that librdkafka and our client have under the same names."""
        return {
            "bootstrap.servers": self.plan.address,
            "client.id": self.plan.instance,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def rest(self) -> None:
        self._is_over.wait(self.plan.pause_s)

    def new_transaction(self) -> str:
        self._transactions += 1
        return f"{self.plan.instance}/{self._transactions}"

    def new_value(
        self, topic: str, *, transaction: str | None = None, source: Position | None = None
    ) -> tuple[str, int]:
        """A value that is written down as sent, and the partition that it is to go to."""
        self._sent += 1
        number = self.rng.randrange(self.plan.partitions)
        value = f"{self.plan.instance}:{self._sent}"
        self.recorder.write(
            Sent(
                at_s=now_s(),
                producer=self.plan.instance,
                number=self._sent,
                value=value,
                partition=partition_name(topic, number),
                transaction=transaction,
                source=source,
                group=None if source is None else self.plan.group,
            )
        )
        return value, number

    def acknowledged(self, value: str, topic: str, number: int, offset: int | None) -> None:
        known = offset if offset is not None and offset >= 0 else UNKNOWN_OFFSET
        position = Position(partition_name(topic, number), known)
        self.recorder.write(Acknowledged(at_s=now_s(), value=value, position=position))

    def ending(self, transaction: str, *, commit: bool) -> None:
        self.recorder.write(Ending(at_s=now_s(), transaction=transaction, commit=commit))

    def ended(self, transaction: str, *, committed: bool) -> None:
        self.recorder.write(Ended(at_s=now_s(), transaction=transaction, committed=committed))

    def positioned(self, partitions: list[str]) -> None:
        if partitions:
            self.recorder.write(Positioned(at_s=now_s(), consumer=self.consumer, partitions=partitions))

    def polled(self, records: list[tuple[Position, str]]) -> None:
        self.recorder.write(
            Polled(
                at_s=now_s(),
                consumer=self.consumer,
                group=self.plan.group,
                isolation=self.plan.isolation,
                records=records,
            )
        )

    def offsets_committed(self, offsets: dict[str, int]) -> None:
        positions = [Position(partition, offset) for partition, offset in offsets.items()]
        self.recorder.write(OffsetsCommitted(at_s=now_s(), group=self.plan.group, offsets=positions))

    def gave_up(self, error: object) -> None:
        self.recorder.write(GaveUp(at_s=now_s(), client=self.plan.instance, error=repr(error)))

    @property
    def consumer(self) -> str:
        """A name for each consumer that an incarnation had, one after the other."""
        return f"{self.plan.instance}#{self.consumers}"


def end_offsets(records: list[tuple[Position, str]]) -> dict[str, int]:
    return {position.partition: position.offset + 1 for position, _ in records}


def first_offsets(records: list[tuple[Position, str]]) -> dict[str, int]:
    return {position.partition: position.offset for position, _ in reversed(records)}


def insist(call: Callable[[], T], failure: type[E], is_retriable: Callable[[E], bool]) -> T:
    """The result of a call that is made again for as long as its error says that this may help."""
    end_s = time.monotonic() + INSIST_S
    while True:
        try:
            return call()
        except failure as error:
            print(f"{time.monotonic():.3f} {error!r}", file=sys.stderr, flush=True)
            if not is_retriable(error) or time.monotonic() > end_s:
                raise


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    is_over = threading.Event()
    # Whoever waits in vain for this client can see what it waits for.
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda number, frame: is_over.set())
    run: Callable[[Client], None]
    if plan.role.startswith("aiokafka"):
        from tests.histories import aiokafka_clients

        run = aiokafka_clients.ROLES[plan.role]
    elif plan.role.startswith("barnabas"):
        from tests.histories import barnabas_clients

        run = barnabas_clients.ROLES[plan.role]
    else:
        from tests.histories import confluent_clients

        run = confluent_clients.ROLES[plan.role]
    with Recorder(Path(plan.path)) as recorder:
        run(Client(plan, recorder, is_over))


if __name__ == "__main__":
    main()
