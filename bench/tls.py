"""A broker with TLS compared with Apache Kafka with TLS: the same load on both, alternating, in one run.

Both brokers have the same certificate (an elliptic curve key) and their default settings of TLS. The load is Python's
`ssl` with raw requests (bench/load.py). A client that decrypts needs more time than a broker that encrypts, so the load
decrypts the first response to a fetch and only counts the TLS records of the others. Handshakes are complete ones,
without resumption, each with one answered request, by several clients at once.

The first rows are about ACLs: the time of a check with 10,000 ACLs, as a request asks for it (with the address of the
client, and metrics), of the authorizer alone, and of a decision that was not asked for before.
BENCH_SECONDS is the time of one load; the warm-up time follows from it.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

from barnabas.broker.requests.authorization import Authorization
from barnabas.broker.requests.session import ClientSession
from barnabas.metrics.registry import Registry
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.security.acls import (
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WILDCARD,
    WRITE,
    AclEntry,
    ResourcePattern,
)
from barnabas.security.authorizer import Authorizer
from barnabas.security.dev_certificates import dev_certificates
from barnabas.security.principal import USER, Principal
from barnabas.testing import free_port
from bench import load
from bench.beside import KAFKA, OURS, Results, Row, measure_load, report, tell
from bench.kafka import ApacheKafka, MeasuredBroker
from bench.table import Table, duration, measure, verdict
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "3"))
WARM_UP_S: Final = 10 * SECONDS
ROUNDS: Final = 5
HANDSHAKE_CLIENTS: Final = 4

BIG_BYTES: Final = 64 << 10
SMALL_BYTES: Final = 1 << 10
FETCH_BYTES: Final = 8 << 20

ACLS: Final = 10_000
ACL_CHECK_S_MAX: Final = 1e-6
IN_A_REQUEST: Final = "of a request"

BIG: Final = "produce with TLS, 64 KiB batches"
SMALL: Final = "produce with TLS, 1 KB batches"
FETCH: Final = "fetch with TLS, from the page cache"
CPU_IN: Final = "broker CPU, in"
CPU_OUT: Final = "broker CPU, out"
HANDSHAKES: Final = f"handshakes, {HANDSHAKE_CLIENTS} clients at once"
CPU_HANDSHAKE: Final = "broker CPU of a handshake"

ROWS: Final = (
    Row(title=FETCH, unit="MB/s", measurements=(FETCH,), ratio_min=2.0),
    Row(title=BIG, unit="MB/s", measurements=(BIG,), ratio_min=1.5),
    Row(title=SMALL, unit="/s", measurements=(SMALL,), ratio_min=1.5),
    Row(title=HANDSHAKES, unit="/s", measurements=(HANDSHAKES,), ratio_min=1.0),
    Row(title=CPU_OUT, unit="s/GB", measurements=(CPU_OUT,), digits=2),
    Row(title=CPU_IN, unit="s/GB", measurements=(CPU_IN,), digits=2),
    Row(title=CPU_HANDSHAKE, unit="µs", measurements=(CPU_HANDSHAKE,)),
)


class TlsBroker(MeasuredBroker):
    """Barnabas with a second listener, for the load."""

    def __init__(self, directory: Path, tls_settings: Mapping[str, str]) -> None:
        self.tls_port = free_port()
        super().__init__(directory, tls_settings)

    def settings(self) -> dict[str, str]:
        known = super().settings()
        return {**known, "listeners": f"{known['listeners']},SSL://{self.host}:{self.tls_port}"}


class TlsKafka(ApacheKafka):
    """The same for Apache Kafka."""

    def __init__(self, directory: Path, tls_settings: Mapping[str, str]) -> None:
        self.tls_port = free_port()
        super().__init__(directory, tls_settings)
        known = dict(line.split("=", 1) for line in self._properties.read_text().splitlines())
        listener = f"SSL://{self.host}:{self.tls_port}"
        settings = {
            "listeners": f"{known['listeners']},{listener}",
            "advertised.listeners": f"{known['advertised.listeners']},{listener}",
            "listener.security.protocol.map": f"{known['listener.security.protocol.map']},SSL:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        # Of a name that is there twice, Java takes the last value.
        with self._properties.open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())


class EncryptedResponses:
    """Asks the same over and over and counts the bytes of the responses, of which it decrypts the first only.

    A TLS record is a head of five bytes, with its length at the end, and in TLS 1.3 the plain text, one byte for its
    type, and a tag of 16 bytes. Java fills short records up, so a response may seem longer than it is, by less than a
    record. A short record at its end may be taken for the beginning of the next response, which changes nothing.
    """

    RECORD_BYTES_MAX: Final = 16 << 10

    HEAD_BYTES: Final = 5
    ADDED_BYTES: Final = 17

    def __init__(self, broker: Contender, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._machine = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._socket = load.connect(broker.tls_port)
        self._buffer = memoryview(bytearray(1 << 20))
        self._until_done(self._machine.do_handshake)
        assert self._machine.version() == "TLSv1.3", self._machine.version()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def repeat(self, request: bytes, seconds: float) -> int:
        self._send(request)
        size = 4 + int.from_bytes(self._decrypted(4), "big")
        self._decrypted(size - 4)
        received = 0
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            self._send(request)
            self._skip(size)
            received += size
        return received

    def _send(self, request: bytes) -> None:
        self._machine.write(request)
        self._socket.sendall(self._outgoing.read())

    def _decrypted(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            parts += self._until_done(partial(self._machine.read, size - len(parts)))
        return bytes(parts)

    def _until_done(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                count = self._socket.recv_into(self._buffer)
                assert count, "the broker has closed the connection"
                self._incoming.write(self._buffer[:count])
            else:
                self._socket.sendall(self._outgoing.read())
                return done

    def _skip(self, size: int) -> None:
        """Receives TLS records with so many bytes of plain text."""
        head = b""
        record_left = 0
        while size > 0 or record_left:
            count = self._socket.recv_into(self._buffer)
            assert count, "the broker has closed the connection"
            position = record_left
            while position < count:
                part = self._buffer[position : min(position + self.HEAD_BYTES - len(head), count)]
                head += part
                position += len(part)
                if len(head) == self.HEAD_BYTES:
                    length = int.from_bytes(head[3:], "big")
                    size -= length - self.ADDED_BYTES
                    position += length
                    head = b""
            record_left = position - count
        assert -size < self.RECORD_BYTES_MAX, f"{-size} bytes more than expected"


Contender = TlsBroker | TlsKafka
Measure = Callable[[str, Contender, ssl.SSLContext, float, Results], None]


def run() -> bool:
    acls_met = _measure_acls()
    try:
        jars(V4)
    except PeerUnavailable as reason:
        print(f"\nNothing to compare with, so no target is shown to be met: {reason}")
        return False
    results = Results()
    # Brokers are stopped before their directories go.
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        context, tls_settings = _certificates(folder)
        kafka = stack.enter_context(TlsKafka(folder / "kafka", tls_settings))
        ours = stack.enter_context(TlsBroker(folder / "ours", tls_settings))
        turns: list[tuple[str, Contender]] = [(KAFKA, kafka), (OURS, ours)]
        for contender, broker in turns:
            _warm(contender, broker, context)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}; load of the machine: {os.getloadavg()[0]:.1f}")
            for measure_one in LOADS:
                for contender, broker in turns if number % 2 == 0 else reversed(turns):
                    measure_one(contender, broker, context, SECONDS, results)
    all_met = report(f"One broker with TLS compared with Apache Kafka {V4}", ROWS, results, ROUNDS)
    print(
        "A ratio is ours to Kafka's, the median of the ratios of the rounds. The load's cores are what its own\n"
        "encryption, sending and receiving took beside Kafka and beside us."
    )
    return all_met and acls_met


def _certificates(folder: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """A client's context, and the settings of the brokers."""
    texts = dev_certificates(("localhost", "127.0.0.1"), (), datetime.now(UTC))
    store = folder / "server.pem"
    store.write_text(texts["server"])
    store.chmod(0o600)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    return ssl.create_default_context(cadata=texts["ca"]), settings


def _warm(contender: str, broker: Contender, context: ssl.SSLContext) -> None:
    """All that will be measured, in short turns: a virtual machine compiles what it has seen often."""
    tell(f"warming for {WARM_UP_S:g} s: {contender}")
    end_s = time.monotonic() + WARM_UP_S
    while time.monotonic() < end_s:
        for measure_one in LOADS:
            measure_one(contender, broker, context, SECONDS / 3, Results())


def _connect(broker: Contender, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(load.connect(broker.tls_port), server_hostname="localhost")


def _produce(broker: Contender, context: ssl.SSLContext, topic: str, batch: bytes, seconds: float) -> int:
    with _connect(broker, context) as connected:
        return load.exchange_on(connected, load.produce_frame(topic, batch), load.check_produced, seconds)


def _produce_big(
    contender: str, broker: Contender, context: ssl.SSLContext, seconds: float, results: Results
) -> None:
    batch = load.batch_of(BIG_BYTES)
    with _topic(broker) as topic:
        done = measure_load(lambda: _produce(broker, context, topic, batch, seconds) * len(batch), broker.pid)
    results.add(BIG, contender, done.per_second / 1e6, done.load_cores)
    results.add(CPU_IN, contender, done.broker_cpu_s / done.amount * 1e9)


def _produce_small(
    contender: str, broker: Contender, context: ssl.SSLContext, seconds: float, results: Results
) -> None:
    batch = load.batch_of(SMALL_BYTES)
    with _topic(broker) as topic:
        done = measure_load(lambda: _produce(broker, context, topic, batch, seconds))
    results.add(SMALL, contender, done.per_second, done.load_cores)


def _fetch(
    contender: str, broker: Contender, context: ssl.SSLContext, seconds: float, results: Results
) -> None:
    batch = load.batch_of(BIG_BYTES)
    with _topic(broker) as topic, EncryptedResponses(broker, context) as connected:
        load.produce_latencies(broker.port, topic, batch, FETCH_BYTES // len(batch) + 1)
        request = load.fetch_frame(topic, 0, FETCH_BYTES)
        done = measure_load(lambda: connected.repeat(request, seconds), broker.pid)
    results.add(FETCH, contender, done.per_second / 1e6, done.load_cores)
    results.add(CPU_OUT, contender, done.broker_cpu_s / done.amount * 1e9)


def _handshakes(
    contender: str, broker: Contender, context: ssl.SSLContext, seconds: float, results: Results
) -> None:
    request = load.frame("ApiVersions", 0, ApiVersionsRequest())

    def log_in() -> int:
        count = 0
        buffer = bytearray(1 << 16)
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            with _connect(broker, context) as connected:
                connected.sendall(request)
                load.read_frame(connected, buffer)
            count += 1
        return count

    done = measure_load(lambda: sum(load.in_threads([log_in] * HANDSHAKE_CLIENTS)), broker.pid)
    results.add(HANDSHAKES, contender, done.per_second, done.load_cores)
    results.add(CPU_HANDSHAKE, contender, done.broker_cpu_s / done.amount * 1e6)


LOADS: Final[tuple[Measure, ...]] = (_produce_big, _produce_small, _fetch, _handshakes)


@contextmanager
def _topic(broker: Contender) -> Iterator[str]:
    """A topic for one load. Its name is new, since a broker may still be deleting the last one."""
    name = f"load-{time.monotonic_ns()}"
    broker.create_topic(name)
    yield name
    broker.delete_topic(name)


def _measure_acls() -> bool:
    """Checks of names that have an ACL of their own, of a prefix, of the wildcard, and none."""
    authorizer = authorizer_with_acls(ACLS)
    assert authorizer.acl_count == ACLS
    ann = Principal(USER, "user-7")
    names = ["topic-7", "team-7-orders", "orders", "topic-8"]
    asked = [(ann, "127.0.0.1", READ, TOPIC, name) for name in names]
    allowed = [authorizer.allows(*question) for question in asked]
    assert allowed == [True, True, False, False], allowed
    table = Table(f"A check with {ACLS:,} ACLs", ("", "one check", "target", ""))

    authorization = Authorization(authorizer, Registry())
    session = ClientSession(listener="PLAINTEXT", host="127.0.0.1", principal=ann)
    exchange: Any = SimpleNamespace(session=session)

    def in_a_request() -> None:
        for name in names:
            authorization.allows(exchange, READ, TOPIC, name, is_logged=False)

    def again() -> None:
        for question in asked:
            authorizer.allows(*question)

    def anew() -> None:
        for question in asked:
            authorizer.decide(question)

    measured = measure(
        {IN_A_REQUEST: in_a_request, "of the authorizer": again, "asked for the first time": anew}
    )
    spent_s = {title: found.best_s / len(asked) for title, found in measured.items()}
    met = spent_s[IN_A_REQUEST] <= ACL_CHECK_S_MAX
    for title, each_s in spent_s.items():
        target = (f"≤ {duration(ACL_CHECK_S_MAX)}", verdict(met)) if title == IN_A_REQUEST else ("", "")
        table.add(title, duration(each_s), *target)
    table.print()
    return met


def authorizer_with_acls(count: int) -> Authorizer:
    """Half of the ACLs for names, the others for prefixes of few lengths, one in ten a DENY."""
    authorizer = Authorizer()
    for number in range(count // 2):
        user = f"User:user-{number}"
        permission = DENY if number % 10 == 0 else ALLOW
        entry = AclEntry(user, WILDCARD, READ, permission)
        authorizer.replace(ResourcePattern(TOPIC, f"topic-{number}", LITERAL), [entry])
        entry = AclEntry(user, WILDCARD, WRITE if number % 2 == 0 else READ, permission)
        authorizer.replace(ResourcePattern(TOPIC, f"team-{number}-", PREFIXED), [entry])
    return authorizer
