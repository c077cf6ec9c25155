"""A broker that cannot start says why and what to do, in one line, and leaves nothing behind that matters later."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
from pathlib import Path

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.testing import free_port
from tests.broker.running import RunningBroker
from tests.clients.broker_process import BrokerProcess
from tests.faults.test_disks import FailingDisk, may_mount

pytestmark = pytest.mark.slow

WAIT_S = 60
FAILED = 1
WRONG_USE = 2


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path / "data")


def refusal(broker: BrokerProcess, exit_code: int = FAILED) -> str:
    """The one line with which a broker refuses to start."""
    broker.begin_start()
    try:
        assert broker.wait(WAIT_S) == exit_code, broker.log_text()
    finally:
        broker.kill()
    text = broker.log_text()
    assert "Traceback" not in text
    assert "fault of barnabas" not in text
    if exit_code == WRONG_USE:
        return " ".join(text.split())
    [line] = [line for line in text.splitlines() if line.startswith("barnabas: ")]
    return line


def check_starts_as_the_first(broker: BrokerProcess) -> None:
    """No id was used up, and the directory counts as a new one."""
    with broker:
        text = broker.log_text()
        assert "broker 1001 of cluster" in text
        assert "crash" not in text
        assert broker.stop() == 0


def test_a_port_that_is_taken(broker: BrokerProcess) -> None:
    with socket.create_server(("127.0.0.1", broker.port)):
        for _ in range(3):
            line = refusal(broker)
            assert f"cannot listen on 127.0.0.1:{broker.port}: another process listens there" in line
            assert not broker.directory.exists()
    check_starts_as_the_first(broker)


def test_a_metrics_port_that_is_taken(broker: BrokerProcess) -> None:
    port = free_port()
    broker.overrides["barnabas.metrics.port"] = str(port)
    with socket.create_server(("127.0.0.1", port)):
        line = refusal(broker)
    assert f"cannot listen on 127.0.0.1:{port}: another process listens there" in line
    assert "(barnabas.metrics.port)" in line
    assert not broker.directory.exists()
    check_starts_as_the_first(broker)


def test_a_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    broker = BrokerProcess(tmp_path / "file" / "data")
    broker.log_file = tmp_path / "log"
    line = refusal(broker)
    assert "A file is in the way" in line
    assert "--override log.dirs=DIRECTORY" in line
    line = refusal(BrokerProcess(tmp_path / "file"))
    assert "A file is in the way" in line


class ReadOnlyBroker(BrokerProcess):
    """Its directory is a file system that is mounted for reading alone, in a mount namespace of the broker's own."""

    def command(self) -> list[str]:
        mount = f'mount -t tmpfs -o ro,size=1m tmpfs "{self.directory}" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, "sh", *super().command()]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    why_not = may_mount()
    if why_not is not None:
        pytest.skip(f"a file system that is read-only is needed: {why_not}")
    broker = ReadOnlyBroker(tmp_path / "data")
    broker.directory.mkdir()
    line = refusal(broker)
    assert str(broker.directory) in line
    assert "Read-only file system" in line
    assert "Make it writable for user" in line
    assert "another broker" not in line


class FullDiskBroker(BrokerProcess):
    """Its directory is a small tmpfs with so much room left."""

    free_bytes = 0

    def command(self) -> list[str]:
        fill = (
            f'mount -t tmpfs -o size=1m tmpfs "{self.directory}" && '
            f'head -c {(1 << 20) - self.free_bytes} /dev/zero > "{self.directory}/filler"; exec "$@"'
        )
        return ["unshare", "--mount", "sh", "-c", fill, "sh", *super().command()]


@pytest.mark.parametrize("free_bytes", [0, 8_192])
def test_a_disk_that_is_full_from_the_start(tmp_path: Path, free_bytes: int) -> None:
    why_not = may_mount()
    if why_not is not None:
        pytest.skip(f"a small tmpfs is needed for a full disk: {why_not}")
    broker = FullDiskBroker(tmp_path / "data")
    broker.free_bytes = free_bytes
    broker.directory.mkdir()
    line = refusal(broker)
    assert "No space left on device" in line
    assert "Make room there" in line


def test_files_that_may_not_grow(broker: BrokerProcess) -> None:
    """A limit that everybody may set: every write fails, and the signal that comes with it does not end the broker."""
    broker.limits[resource.RLIMIT_FSIZE] = 0
    broker.begin_start()
    # It cannot write its log either.
    assert broker.wait(WAIT_S) == FAILED
    broker.limits.clear()
    check_starts_as_the_first(broker)


@pytest.mark.parametrize(
    ("error_number", "advice"),
    [
        (errno.ENOSPC, "Make room there"),
        (errno.EROFS, "Make it writable"),
        (errno.ENOENT, "It cannot be created there. Choose another directory"),
        (errno.EIO, "Look after the disk"),
    ],
)
def test_each_cause_has_its_own_words(tmp_path: Path, error_number: int, advice: str) -> None:
    disk = FailingDisk(tmp_path, error_number)
    disk.fails = True
    with pytest.raises(KafkaStorageError) as caught:
        RunningBroker(tmp_path / "data", fs=disk).start()
    assert os.strerror(error_number) in str(caught.value)
    assert advice in str(caught.value)
    with RunningBroker(tmp_path / "data") as running:
        assert running.server.broker.replicas.broker_id == 1001


def test_a_name_that_is_mistyped_on_the_command_line(broker: BrokerProcess) -> None:
    broker.overrides["log.retention.hour"] = "1"
    line = refusal(broker, WRONG_USE)
    assert "--override: there is no setting 'log.retention.hour'; did you mean 'log.retention.hours'?" in line
    assert not broker.directory.exists()
    del broker.overrides["log.retention.hour"]
    broker.overrides["listener.name.plaintext.own.plug.in"] = "1"
    check_starts_as_the_first(broker)


def test_a_name_that_is_mistyped_in_a_file_is_a_warning(tmp_path: Path) -> None:
    class FromFile(BrokerProcess):
        def command(self) -> list[str]:
            return [*super().command(), str(tmp_path / "server.properties")]

    (tmp_path / "server.properties").write_text("log.retention.hour=1\n")
    with FromFile(tmp_path / "data") as broker:
        assert (
            "there is no setting 'log.retention.hour'; did you mean 'log.retention.hours'?"
            in broker.log_text()
        )


def test_the_exit_codes_are_for_scripts(tmp_path: Path) -> None:
    """What the README says of every command: 1 for what failed, 2 for wrong use."""
    file = tmp_path / "absent.properties"
    done = subprocess.run(
        [*BrokerProcess(tmp_path / "data").command()[:4], str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == WRONG_USE
    assert str(file) in done.stderr
