"""Opens a log directory and stops it cleanly, without a broker: after a crash this is its recovery."""

from __future__ import annotations

import os

from barnabas.clock import Clock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import FileSystem
from barnabas.log.manager.loading import OnProgress
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.names import BadDirectoryName, parse_partition_dir
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.tools.directory_config import infer_log_configs
from barnabas.log.tools.inspection import is_partition_directory
from barnabas.log.tools.verify import partition_directories


def recover_directory(
    fs: FileSystem, directory: str, clock: Clock, on_progress: OnProgress = lambda _: None
) -> int:
    """Recovers what a crash has left, and marks the directory as cleanly stopped; how many logs there are.

    Nothing is retained or compacted, and partitions that wait for their deletion still wait. Raises DirectoryInUse if
    a broker runs on the directory.
    """
    if is_partition_directory(fs, directory):
        raise BadDirectoryName(
            f"{directory} is the directory of one partition. Name the log directory that contains it"
        )
    topics: dict[str, list[str]] = {}
    for name in partition_directories(fs, directory):
        topic = parse_partition_dir(name).partition.topic
        topics.setdefault(topic, []).append(os.path.join(directory, name))
    configs = infer_log_configs(fs, topics, LogConfig())
    manager = LogManager(
        [directory],
        environment=LogEnvironment(fs=fs, clock=clock),
        config_of=configs.__getitem__,
        # The writer of the logs and its settings are unknown.
        settings=ManagerSettings(expects_no_gaps=False, removes_deleted=False, misses_logs=False),
    )
    manager.open(on_progress)
    count = len(manager.logs())
    manager.close()
    return count
