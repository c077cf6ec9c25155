"""The index interval of a topic, read off its indexes: close enough that a rebuilt index is the one that was lost."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.tools.directory_config import infer_log_configs
from barnabas.model import TimestampMs
from barnabas.records.builder import BatchBuilder
from tests.log.simulated import SimulatedFileSystem

DEFAULT = LogConfig()


def open_log(fs: SimulatedFileSystem, directory: str, config: LogConfig, clock: ManualClock) -> PartitionLog:
    return PartitionLog.open(
        directory,
        environment=LogEnvironment(fs=fs, clock=clock),
        config=config,
        prior=PriorState(clean_shutdown=True),
    )


def write(fs: SimulatedFileSystem, topic: str, interval_bytes: int, rng: Random, restarts: int = 0) -> str:
    directory = f"/data/{topic}-0"
    config = LogConfig(index_interval_bytes=interval_bytes, segment_bytes=20_000)
    clock = ManualClock()
    for _ in range(restarts + 1):
        log = open_log(fs, directory, config, clock)
        for _ in range(60 // (restarts + 1)):
            builder = BatchBuilder()
            for _ in range(rng.randrange(1, 8)):
                builder.append(TimestampMs(clock.now_ms()), None, rng.randbytes(rng.randrange(150)))
            log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        log.flush()
        log.close()
    return directory


@pytest.mark.parametrize("interval_bytes", [0, 128, 200, 333, 1000, 4096])
def test_rebuilt_index_is_the_one_that_was_lost(interval_bytes: int) -> None:
    for seed in range(3):
        fs = SimulatedFileSystem()
        directory = write(fs, "t", interval_bytes, Random(seed))
        config = infer_log_configs(fs, {"t": [directory]}, DEFAULT)["t"]
        lost = f"{directory}/00000000000000000000.index"
        before = fs.read_file(lost)
        fs.remove(lost)
        log = open_log(fs, directory, config, ManualClock())
        log.close()
        assert fs.read_file(lost) == before, (seed, config.index_interval_bytes)


@pytest.mark.parametrize("interval_bytes", [128, 200, 333, 1000, 4096])
def test_restarts_blur_the_interval_only_a_little(interval_bytes: int) -> None:
    for seed in range(3):
        fs = SimulatedFileSystem()
        directory = write(fs, "t", interval_bytes, Random(seed), restarts=2)
        config = infer_log_configs(fs, {"t": [directory]}, DEFAULT)["t"]
        assert abs(config.index_interval_bytes - interval_bytes) <= interval_bytes // 10


def test_topics_help_each_other() -> None:
    fs = SimulatedFileSystem()
    rng = Random(5)
    topics = {f"t{number}": [write(fs, f"t{number}", 533, rng)] for number in range(8)}
    # One entry is hardly evidence: by itself it would allow for many intervals.
    topics["short"] = [write(fs, "short", 533, rng)]
    configs = infer_log_configs(fs, topics, DEFAULT)
    assert len({config.index_interval_bytes for config in configs.values()}) == 1
    assert abs(configs["short"].index_interval_bytes - 533) < 20


def test_without_evidence_the_default_holds() -> None:
    fs = SimulatedFileSystem()
    fs.make_dirs("/data/empty-0")
    assert infer_log_configs(fs, {"empty": ["/data/empty-0"]}, DEFAULT) == {"empty": DEFAULT}
    directory = write(fs, "t", 4096, Random(1))
    assert infer_log_configs(fs, {"t": [directory]}, DEFAULT)["t"] is DEFAULT
