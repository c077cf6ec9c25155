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
`barnabas_timeout_ms` in pytest's file: ten minutes by default, 0 for no time-out. The set-up of its fixtures and their
teardown may each take as long; the start and the end of the broker do not count. A failure in any of the three shows
the broker's log.

pytest loads this module at every start, whether or not a test needs a broker, so expensive imports are late.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
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
# After a time-out, a phase has at least as long to clean up before it is stopped again.
CLEAN_UP_MS_MIN: Final = 2_000
SHOWN_CHARACTERS: Final = 20_000
# What each phase of a test with a broker may take.
BOUND_MS: Final = pytest.StashKey[float]()
# The logs of the brokers that a test has, by their titles.
LOGS: Final = pytest.StashKey[dict[str, Callable[[], str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        TIMEOUT_OPTION,
        f"how long a test with a broker, its set-up or its teardown may take, in ms; 0 for as long as it likes"
        f" (default: {TIMEOUT_MS})",
        default=str(TIMEOUT_MS),
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics, timeout_ms, **settings): topics and settings of what the fixtures barnabas_broker and"
        " barnabas_cluster start, and how long the test may take",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, None]:
    if {*BROKERS, CLUSTER} & set(getattr(item, "fixturenames", ())):
        item.stash[BOUND_MS] = _timeout_ms(item)
    with _bounded(item, "the fixtures of the test were not set up"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    with _bounded(item, "the test was not done"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, None]:
    with _bounded(item, "the fixtures of the test were not torn down"):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Adds the logs of brokers to the report of a failure."""
    outcome = yield
    report = outcome.get_result()
    logs = item.stash.get(LOGS, {})
    if report.failed:
        report.sections.extend((title, read()) for title, read in logs.items())
    if report.when == "teardown":
        logs.clear()


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


class _Late:
    """The handler of the signal. It comes again while the phase goes on, as a teardown does with the next fixture."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __call__(self, _number: int, _frame: object) -> NoReturn:
        pytest.fail(self._message)


@contextmanager
def _bounded(item: pytest.Item, problem: str) -> Iterator[None]:
    """Makes this phase of the test fail after its time.

    Signals arrive on the main thread alone. A timer of another plugin, such as pytest-timeout, stays as it is.
    """
    timeout_ms = item.stash.get(BOUND_MS, 0.0)
    is_free = (
        timeout_ms > 0
        and threading.current_thread() is threading.main_thread()
        and hasattr(signal, "setitimer")
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )
    if not is_free:
        yield
        return

    before = signal.signal(signal.SIGALRM, _Late(f"{problem} within {TIMEOUT}={timeout_ms:g}"))
    signal.setitimer(signal.ITIMER_REAL, timeout_ms / 1000, max(timeout_ms, CLEAN_UP_MS_MIN) / 1000)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _uncounted() -> Iterator[None]:
    """The time of a test stands still: what brokers do has bounds of its own."""
    if not hasattr(signal, "setitimer") or not isinstance(signal.getsignal(signal.SIGALRM), _Late):
        yield
        return
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)


def _log_of(broker: Broker, start: int = 0) -> Callable[[], str]:
    """Reads what the broker has written for a test, from this position on."""

    def read() -> str:
        written = broker.log()
        # A broker that was started again has a new log.
        return (written[start:] if start <= len(written) else written)[-SHOWN_CHARACTERS:]

    return read


@contextmanager
def _lent(
    request: pytest.FixtureRequest, logs: dict[str, Callable[[], str]], end: Callable[[], None]
) -> Iterator[None]:
    """Shows these logs if the test fails, also after their brokers have ended."""
    request.node.stash.setdefault(LOGS, {}).update(logs)
    try:
        yield
    finally:
        with _uncounted():
            for title, read in logs.items():
                request.node.stash[LOGS][title] = partial(str, read())
            end()


@pytest.fixture
def barnabas_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test only; it is removed with all its data after the test."""
    with _uncounted():
        from barnabas.testing import Broker

        broker = Broker(**_settings(request))
        broker.start()
    with _lent(request, {"log of barnabas_broker": _log_of(broker)}, broker.close):
        yield broker


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test only. The test is skipped if there is no ZooKeeper to start."""
    with _uncounted():
        from barnabas.testing import Cluster, ZooKeeperUnavailable

        cluster = Cluster(**_settings(request))
        try:
            cluster.start()
        except ZooKeeperUnavailable as missing:
            pytest.skip(str(missing))
    logs = {
        f"log of broker {number} of {CLUSTER}": _log_of(broker)
        for number, broker in enumerate(cluster.brokers)
    }
    with _lent(request, logs, cluster.close):
        yield cluster


@pytest.fixture(scope="session")
def _session_barnabas_broker() -> Iterator[Broker]:
    with _uncounted():
        from barnabas.testing import Broker

        broker = Broker()
        broker.start()
    yield broker
    with _uncounted():
        broker.close()


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

    def clean_up() -> None:
        if broker.is_running:
            broker.reset()

    with _uncounted():
        if not broker.is_running:
            broker.start()
        start = len(broker.log())
        if topics:
            broker.create_topics(topics)
    with _lent(request, {"log of shared_barnabas_broker": _log_of(broker, start)}, clean_up):
        yield broker
