"""Fixtures that give a test a running broker.

    def test_orders(barnabas_broker):
        producer = barnabas_broker.producer()

`barnabas_broker` is a broker for one test. `shared_barnabas_broker` is one broker for all tests of a run; each test
sees only its own topics and groups. This is cheaper if there are many tests. A marker sets topics and settings:

    @pytest.mark.barnabas(topics={"orders": 3}, log_retention_ms=1000)

With `brokers=3` in the marker, `barnabas_broker` is three brokers on this host, without a ZooKeeper.

`barnabas_cluster` is a cluster of three brokers on a ZooKeeper for one test; the marker sets its topics, settings and
number of brokers too.

A test that uses one of these fixtures fails after `timeout_ms` of the marker, or else of the option
`barnabas_timeout_ms` in pytest's file: ten minutes by default, 0 for no time-out. A failure shows the broker's log.

pytest loads this module at every start, whether or not a test needs a broker, so expensive imports are late.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from barnabas.testing import Broker, Cluster

MARKER: Final = "barnabas"
BROKERS: Final = ("barnabas_broker", "shared_barnabas_broker")
CLUSTER: Final = "barnabas_cluster"
TIMEOUT: Final = "timeout_ms"
TIMEOUT_OPTION: Final = "barnabas_timeout_ms"
TIMEOUT_MS: Final = 600_000
SHOWN_CHARACTERS: Final = 20_000
# Where the log of a shared broker begins for a test.
LOG_START: Final = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        TIMEOUT_OPTION,
        f"how long a test with a broker may take, in ms; 0 for as long as it likes (default: {TIMEOUT_MS})",
        default=str(TIMEOUT_MS),
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics, timeout_ms, **settings): topics and settings of what the fixtures barnabas_broker and"
        " barnabas_cluster start, and how long the test may take",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    if not {*BROKERS, CLUSTER} & set(getattr(item, "fixturenames", ())):
        yield
        return
    with _bounded(_timeout_ms(item)):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Adds the log of the broker to the report of a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and report.when == "call":
        for title, text in _logs(item):
            report.sections.append((title, text))


def _logs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    fixtures: dict[str, Any] = getattr(item, "funcargs", {})
    for name in BROKERS:
        broker = fixtures.get(name)
        if broker is not None:
            written = broker.log()
            # A broker that was started again has a new log.
            start = item.stash.get(LOG_START, 0)
            yield (
                f"log of {name}",
                (written[start:] if start <= len(written) else written)[-SHOWN_CHARACTERS:],
            )
    cluster = fixtures.get(CLUSTER)
    if cluster is not None:
        for number, broker in enumerate(cluster.brokers):
            yield f"log of broker {number} of {CLUSTER}", broker.log()[-SHOWN_CHARACTERS:]


def _timeout_ms(item: pytest.Item) -> float:
    marker = item.get_closest_marker(MARKER)
    given = None if marker is None else marker.kwargs.get(TIMEOUT)
    given = item.config.getini(TIMEOUT_OPTION) if given is None else given
    try:
        return max(0.0, float(given))
    except (TypeError, ValueError):
        raise pytest.UsageError(f"{TIMEOUT}={given!r} is no number of milliseconds") from None


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker(MARKER)
    return {} if marker is None else {name: value for name, value in marker.kwargs.items() if name != TIMEOUT}


@contextmanager
def _bounded(timeout_ms: float) -> Iterator[None]:
    """Makes the test fail after this time.

    Signals arrive on the main thread alone. A timer of another plugin, such as pytest-timeout, stays as it is.
    """
    is_free = (
        timeout_ms > 0
        and threading.current_thread() is threading.main_thread()
        and hasattr(signal, "setitimer")
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )
    if not is_free:
        yield
        return

    def stop(_number: int, _frame: object) -> NoReturn:
        pytest.fail(f"the test was not done within {TIMEOUT}={timeout_ms:g}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def barnabas_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test only; it is removed with all its data after the test."""
    from barnabas.testing import Broker

    with Broker(**_settings(request)) as broker:
        yield broker


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test only. The test is skipped if there is no ZooKeeper to start."""
    from barnabas.testing import Cluster, ZooKeeperUnavailable

    cluster = Cluster(**_settings(request))
    try:
        cluster.start()
    except ZooKeeperUnavailable as missing:
        pytest.skip(str(missing))
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def _session_barnabas_broker() -> Iterator[Broker]:
    from barnabas.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def shared_barnabas_broker(
    request: pytest.FixtureRequest, _session_barnabas_broker: Broker
) -> Iterator[Broker]:
    """One broker for all tests that use it; topics and groups of a test are deleted after it."""
    broker = _session_barnabas_broker
    wanted = _settings(request)
    topics = wanted.pop("topics", ())
    if wanted:
        raise pytest.UsageError(
            f"a broker that tests share has no settings for one of them ({', '.join(wanted)}): use barnabas_broker"
        )
    if not broker.is_running:
        broker.start()
    request.node.stash[LOG_START] = len(broker.log())
    if topics:
        broker.create_topics(topics)
    yield broker
    if broker.is_running:
        broker.reset()
