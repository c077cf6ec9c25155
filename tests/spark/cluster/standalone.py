"""A Spark standalone master and its workers from the installed pyspark package, on loopback, to be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.waiting import wait_until

# A JVM on a busy machine: this bounds a wait, it is not what is expected.
START_TIMEOUT_S: Final = 120
EXECUTOR_MB: Final = 512
HOST: Final = "127.0.0.1"
DAEMON_MB: Final = 128
# A daemon that lives for a minute has no use for what makes one fast that lives for days.
DAEMON_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class Daemon:
    """A process of Spark with its log."""

    def __init__(self, folder: Path, name: str, arguments: list[str], ready: str) -> None:
        import pyspark

        self.log = folder / f"{name}.log"
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        # Only Python itself is on the path of workers, not this environment with its packages.
        python = os.path.dirname(os.path.realpath(sys.executable))
        paths = [each for each in os.environ.get("PATH", "").split(os.pathsep) if "venv" not in each]
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "SPARK_", "PYSPARK"))
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(spark_class), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={
                    **kept,
                    "PATH": os.pathsep.join([python, *paths]),
                    "SPARK_HOME": str(spark_class.parents[1]),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_DAEMON_MEMORY": f"{DAEMON_MB}m",
                    "SPARK_DAEMON_JAVA_OPTS": DAEMON_JAVA,
                },
            )
        self._ready = ready

    @property
    def pid(self) -> int:
        return self._process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until_ready(self) -> re.Match[str]:
        def ready() -> re.Match[str] | None:
            assert self._process.poll() is None, self.text()[-3000:]
            return re.search(self._ready, self.text())

        found = wait_until(ready, lambda: self.text()[-3000:], timeout_s=START_TIMEOUT_S, poll_s=0.05)
        assert found is not None
        return found

    def kill(self) -> None:
        """The daemon alone, as if it had run out of memory."""
        self._process.kill()
        self._process.wait(START_TIMEOUT_S)

    def close(self) -> None:
        """Ends the daemon and the executors that it started, which are in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(START_TIMEOUT_S)


class SparkCluster:
    """A master with workers of one core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._started = 0
        self.workers: list[Daemon] = []
        self.killed = {"executors": 0, "workers": 0}

    def __enter__(self) -> Self:
        arguments = ["org.apache.spark.deploy.master.Master", "--host", HOST, "--port", "0"]
        self._master = Daemon(
            self._folder,
            "master",
            [*arguments, "--webui-port", "0"],
            r"Starting Spark master at (spark://[^\s]+:\d+)",
        )
        try:
            self.url = self._master.wait_until_ready()[1]
            started = [self._start_worker() for _ in range(self._count)]
            for each in started:
                each.wait_until_ready()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for each in (*self.workers, self._master):
            each.close()

    def _start_worker(self) -> Daemon:
        self._started += 1
        name = f"worker-{self._started}"
        arguments = ["org.apache.spark.deploy.worker.Worker", "--host", HOST, "--port", "0"]
        arguments += ["--webui-port", "0", "--cores", "1", "--memory", f"{EXECUTOR_MB}m"]
        arguments += ["--work-dir", str(self._folder / name), self.url]
        worker = Daemon(self._folder, name, arguments, "Successfully registered with master")
        self.workers.append(worker)
        return worker

    def complete(self) -> None:
        """Starts a worker for each that was killed."""
        while len(self.workers) < self._count:
            self._start_worker().wait_until_ready()

    def executors(self) -> list[int]:
        """The processes of executors, by worker."""
        parents = {each.pid for each in self.workers}
        return [pid for pid, parent, command in processes() if parent in parents and EXECUTOR in command]

    def kill_executor(self, number: int = 0) -> int:
        pids = wait_until(self.executors, "an executor runs", timeout_s=START_TIMEOUT_S)
        pid = pids[number % len(pids)]
        os.kill(pid, signal.SIGKILL)
        self.killed["executors"] += 1
        return pid

    def kill_worker(self, number: int = 0) -> None:
        """Kills a daemon; its executors end when they notice."""
        worker = self.workers.pop(number % len(self.workers))
        worker.kill()
        self.killed["workers"] += 1
        with contextlib.suppress(ProcessLookupError):
            # An executor in the middle of its start may not notice.
            wait_until(lambda: not group_has_members(worker.pid), "executors end", timeout_s=30)

    def executor_errors(self) -> str:
        logs = sorted(self._folder.glob("worker-*/app-*/*/stderr"))
        return "\n".join(f"{each}:\n{each.read_text(errors='replace')[-1500:]}" for each in logs)


def processes() -> list[tuple[int, int, bytes]]:
    """Process, parent and command line of all processes."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            if status[0] != "Z":
                found.append((int(folder.name), int(status[1]), (folder / "cmdline").read_bytes()))
    return found


def group_has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return any(command and os.getpgid(pid) == group for pid, _, command in processes() if _is_there(pid))


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
