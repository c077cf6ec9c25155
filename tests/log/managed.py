"""A log manager on a simulated disk, for its tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.directory import LogDirectory
from barnabas.log.manager.loading import LoadProgress
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.log.tools.inspection import read_from
from barnabas.model import TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from tests.log.simulated import SimulatedFileSystem


class ManualScheduler:
    """Keeps what it is given until a test lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.pending: list[tuple[int, str, Callable[[], None]]] = []

    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        self.pending.append((self._clock.now_ms() + delay_ms, name, action))

    def run_due(self) -> None:
        """Runs what is due by now; what that schedules comes next time."""
        now_ms = self._clock.now_ms()
        due = [entry for entry in self.pending if entry[0] <= now_ms]
        self.pending = [entry for entry in self.pending if entry[0] > now_ms]
        for _, _, action in sorted(due, key=lambda entry: entry[0]):
            action()


class ManagedLogs:
    """A manager that can be stopped, killed and started again on the same disks."""

    def __init__(
        self,
        directories: Sequence[str] = ("/disk",),
        config: LogConfig | None = None,
        settings: ManagerSettings | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(self.clock)
        self.directories = directories
        self.config = LogConfig(index_interval_bytes=100) if config is None else config
        self.settings = ManagerSettings() if settings is None else settings
        self.offline: list[tuple[str, list[TopicPartition]]] = []
        self.progress: list[LoadProgress] = []
        self.start()

    def start(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.progress = []
        self.manager = LogManager(
            self.directories,
            environment=LogEnvironment(fs=self.fs, clock=self.clock, scheduler=self.scheduler),
            config_of=lambda topic: self.config,
            settings=self.settings,
            on_offline=self._note_offline,
            locks=False,
        )
        self.manager.open(self.progress.append)

    def _note_offline(self, directory: LogDirectory, partitions: list[TopicPartition]) -> None:
        self.offline.append((directory.path, partitions))

    def restart(self) -> None:
        self.manager.close()
        self.start()

    def kill(self) -> None:
        self.fs = self.fs.kill()
        self.start()

    def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)
        self.scheduler.run_due()

    def log(self, name: str) -> PartitionLog:
        topic, _, partition = name.rpartition("-")
        log = self.manager.log(TopicPartition(topic, int(partition)))
        assert log is not None, name
        return log

    def create(self, name: str, *values: str, directory: str | None = None) -> PartitionLog:
        topic, _, partition = name.rpartition("-")
        log = self.manager.get_or_create(
            TopicPartition(topic, int(partition)), None, is_new=True, directory=directory
        )
        if values:
            self.append(log, *values)
        return log

    def append(self, log: PartitionLog, *values: str) -> None:
        builder = BatchBuilder()
        for value in values:
            builder.append(TimestampMs(self.clock.now_ms()), None, value.encode())
        log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)


def values(log: PartitionLog) -> list[str]:
    return [
        (record.value or b"").decode()
        for _, record in read_from(log, log.log_start_offset, Isolation.LOG_END)
    ]
