"""The broker that tests of others use, and the fixtures that give it to them."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from barnabas.config.definition import UnknownSetting
from barnabas.testing import Broker, BrokerFailed, free_port
from barnabas.testing import broker as broker_module

ROOT = Path(__file__).parents[1]
# These bound a wait on a busy machine; they are not what is expected.
WAIT_S = 90
# The promise on a plain machine of today, in processor time, and how much slower than that the machine may be.
START_BOUND_S = 0.3
SECURED_START_BOUND_S = 0.5
SLACK = 5
ATTEMPTS = 5


@pytest.mark.slow
def test_a_broker_comes_with_its_topics_and_goes_without_a_trace() -> None:
    with Broker(topics={"orders": 3, "users": 1}, num_partitions=2) as broker:
        folder = broker.directory.parent
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        with broker.admin() as admin:
            admin.create_topics("others")
            topics = {topic.name: topic.partitions for topic in admin.list_topics()}
        assert topics == {"orders": 3, "users": 1, "others": 2}
        assert (broker.directory / "orders-2").is_dir()
        assert broker.is_running
    assert not broker.is_running
    assert not folder.exists()


@pytest.mark.slow
def test_data_and_port_stay_over_restarts(tmp_path: Path) -> None:
    with Broker(topics=["kept"], directory=tmp_path / "data") as broker:
        port = broker.port
        broker.restart()
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.port == port
        with broker.admin() as admin:
            assert [topic.name for topic in admin.list_topics()] == ["kept"]
    assert (tmp_path / "data" / "kept-0").is_dir()


@pytest.mark.slow
def test_a_clean_state(tmp_path: Path) -> None:
    with Broker(topics={"mine": 2}) as broker, broker.admin() as admin:
        before = admin.describe_topics("mine")["mine"].topic_id
        admin.create_topics("left-behind")
        admin.alter_group_offsets("group", {("mine", 0): 0})  # type: ignore[dict-item]
        broker.reset()
        assert [topic.name for topic in admin.list_topics()] == ["mine"]
        assert admin.describe_topics("mine")["mine"].topic_id != before
        assert admin.list_groups() == []


def test_a_setting_that_there_is_not() -> None:
    with pytest.raises(
        UnknownSetting, match="no setting num_partitons of a broker; did you mean num_partitions"
    ):
        Broker(num_partitons=3)


def test_a_broker_that_does_not_start_says_why() -> None:
    with pytest.raises(
        BrokerFailed, match=r"Invalid value -3 for configuration num\.partitions: Value must be at least 1"
    ):
        Broker(num_partitions=-3).start()


@pytest.mark.slow
def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailed, match="another process listens there"):
            Broker(port=port).start()
        ports = iter([port, free_port(), free_port()])
        monkeypatch.setattr(broker_module, "free_port", lambda: next(ports))
        with Broker() as broker:
            assert broker.port != port


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="needs Linux: the end of a process that is not a child"
)
def test_a_broker_does_not_outlive_who_started_it() -> None:
    code = """
import os
from barnabas.testing import Broker
broker = Broker()
broker.start()
print(broker.pid, broker.directory.parent, flush=True)
input()
os._exit(1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        pid, folder = child.stdout.readline().split()
        process = os.pidfd_open(int(pid))
        try:
            child.communicate("\n", timeout=WAIT_S)
            readable, _, _ = select.select([process], [], [], WAIT_S)
        finally:
            os.close(process)
    assert readable, "the broker still runs"
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "bound_s"),
    [({}, START_BOUND_S), ({"security": "sasl_ssl", "users": {"ann": "secret"}}, SECURED_START_BOUND_S)],
)
def test_a_start_is_fast(settings: dict[str, Any], bound_s: float) -> None:
    """With security, the time includes that of the certificates, which one process creates once, and of the users."""
    spent = []
    for _ in range(ATTEMPTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        own_s = time.process_time()
        with Broker(**settings):
            pass
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        own_s = time.process_time() - own_s
        spent.append(own_s + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"a broker for a test: {min(spent):.2f} s of processor time, promised are {bound_s}")
    assert min(spent) < bound_s * SLACK


USING_THE_PLUGIN = """
import pytest

directories = []

def test_a_broker_of_its_own(barnabas_broker):
    with barnabas_broker.admin() as admin:
        assert admin.list_topics() == []
        directories.append(barnabas_broker.directory)

@pytest.mark.barnabas(topics={"orders": 3}, num_partitions=2)
def test_topics_and_settings(barnabas_broker):
    assert not directories[0].exists()
    with barnabas_broker.admin() as admin:
        admin.create_topics("more")
        assert {topic.name: topic.partitions for topic in admin.list_topics()} == {"orders": 3, "more": 2}

@pytest.mark.barnabas(brokers=3, topics={"spread": 6})
def test_several_brokers(barnabas_broker):
    with barnabas_broker.admin() as admin:
        leaders = {each.leader for each in admin.describe_topics("spread")["spread"].partitions}
    assert leaders == {0, 1, 2}

@pytest.mark.barnabas(topics=["first"])
def test_sharing(shared_barnabas_broker):
    directories.append(shared_barnabas_broker.directory)
    with shared_barnabas_broker.admin() as admin:
        admin.create_topics("second")
        assert [topic.name for topic in admin.list_topics()] == ["first", "second"]

def test_sharing_on(shared_barnabas_broker):
    assert shared_barnabas_broker.directory == directories[1]
    with shared_barnabas_broker.admin() as admin:
        assert admin.list_topics() == []
    shared_barnabas_broker.kill()

def test_a_broker_that_a_test_has_killed_is_there_again(shared_barnabas_broker):
    with shared_barnabas_broker.admin() as admin:
        assert admin.list_topics() == []

@pytest.mark.barnabas(topics=["seen-in-the-log"])
def test_that_fails(shared_barnabas_broker):
    assert not "the log is shown"

@pytest.mark.barnabas(timeout_ms=300)
def test_that_hangs(barnabas_broker):
    with barnabas_broker.consumer("t") as consumer:
        next(consumer)

@pytest.mark.barnabas(timeout_ms="soon")
def test_with_a_wrong_time_out(shared_barnabas_broker):
    pass

@pytest.mark.barnabas(num_partitions=2)
def test_settings_of_what_is_shared(shared_barnabas_broker):
    raise AssertionError("the fixture should have failed")
"""


IN_FIXTURES = """
import pytest

@pytest.fixture
def stuck(barnabas_broker):
    with barnabas_broker.consumer("t") as consumer:
        yield next(consumer)

@pytest.fixture
def failing(barnabas_broker):
    raise RuntimeError("set-up broke")

@pytest.fixture
def stuck_at_the_end(barnabas_broker):
    yield
    with barnabas_broker.consumer("t") as consumer:
        next(consumer)

@pytest.fixture
def failing_at_the_end(barnabas_broker):
    yield
    raise RuntimeError("teardown broke")

@pytest.mark.barnabas(timeout_ms=300, topics=["log-of-a-stuck-setup"])
def test_stuck_setup(stuck):
    pass

@pytest.mark.barnabas(topics=["log-of-a-failing-setup"])
def test_failing_setup(failing):
    pass

@pytest.mark.barnabas(timeout_ms=300, topics=["log-of-a-stuck-teardown"])
def test_stuck_teardown(failing_at_the_end, stuck_at_the_end):
    pass

@pytest.mark.barnabas(topics=["log-of-a-failing-teardown"])
def test_failing_teardown(failing_at_the_end):
    pass

@pytest.fixture
def twice_stuck_at_the_end(stuck_at_the_end, barnabas_broker):
    yield
    with barnabas_broker.consumer("t") as consumer:
        next(consumer)

@pytest.mark.barnabas(timeout_ms=300, topics=["log-of-a-twice-stuck-teardown"])
def test_twice_stuck_teardown(twice_stuck_at_the_end):
    pass

@pytest.mark.barnabas(timeout_ms=200)
def test_the_start_does_not_count(barnabas_broker):
    pass

def test_a_broker_that_the_test_has_closed(barnabas_broker):
    barnabas_broker.close()
"""


def run_pytest(directory: Path, tests: str) -> str:
    """What pytest says about these tests."""
    (directory / "test_with_a_broker.py").write_text(tests)
    arguments = [
        "-q",
        "--strict-markers",
        "-p",
        "barnabas.pytest_plugin",
        "-p",
        "no:cacheprovider",
        str(directory),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            # The plugin may be installed under its own name besides.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.stdout


@pytest.mark.slow
def test_the_fixtures(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, USING_THE_PLUGIN)
    assert "2 failed, 6 passed, 2 errors" in output, output
    failures = output.partition("test_that_fails")[2]
    assert "log of shared_barnabas_broker" in failures
    assert "seen-in-the-log" in failures
    assert "the test was not done within timeout_ms=300" in failures
    assert "log of barnabas_broker" in failures
    assert "timeout_ms='soon' is no number of milliseconds" in output
    assert "a broker that tests share has no settings for one of them (num_partitions)" in output


@pytest.mark.slow
def test_fixtures_of_users_have_the_time_out_and_the_log(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, IN_FIXTURES)
    assert "5 passed, 5 errors" in output, output
    for place, problem in {
        "setup of test_stuck_setup": "the fixtures of the test were not set up within timeout_ms=300",
        "setup of test_failing_setup": "RuntimeError: set-up broke",
        "teardown of test_stuck_teardown": "the fixtures of the test were not torn down within timeout_ms=300",
        "teardown of test_failing_teardown": "RuntimeError: teardown broke",
        "teardown of test_twice_stuck_teardown": "were not torn down within timeout_ms=300",
    }.items():
        report = re.split(r"^_+ ERROR at ", output.partition(f" ERROR at {place} _")[2], flags=re.MULTILINE)[
            0
        ]
        assert problem in report
        topic = "log-of-a-" + place.partition("_")[2].replace("_", "-")
        assert topic in report.partition("log of barnabas_broker")[2], place


def test_the_plugin_costs_pytest_nothing() -> None:
    code = "import barnabas.pytest_plugin, json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in json.loads(done.stdout) if name.startswith("barnabas")]
    assert loaded == ["barnabas", "barnabas.pytest_plugin"]


def test_pytest_finds_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"barnabas": "barnabas.pytest_plugin"}
