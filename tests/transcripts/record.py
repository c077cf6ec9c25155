"""Records the golden transcripts from a controller of Apache Kafka 3.9.1. It needs Java and Maven.

python -m tests.transcripts.record                  all levels of the protocol, all scenarios
python -m tests.transcripts.record --level 3.9 --scenario bounce --print
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.peers.kafka_cluster import ZOOKEEPER_VERSION, KafkaBroker
from tests.peers.zookeeper_peer import zookeeper
from tests.transcripts.golden import LEVELS, shown, write_golden
from tests.transcripts.real_world import QUIET_S, real_world
from tests.transcripts.scenarios import SCENARIOS, run_scenario
from tests.transcripts.transaction_log import TransactionLog
from tests.transcripts.world import CONTROLLER_ID


def record(
    level: str,
    scenarios: Sequence[str],
    folder: Path,
    on_transcript: Callable[[str, list[Any]], None],
    quiet_s: float,
) -> None:
    with zookeeper(ZOOKEEPER_VERSION, folder / "zookeeper") as server:
        settings = {
            "inter.broker.protocol.version": level,
            "auto.create.topics.enable": "false",
            "zookeeper.session.timeout.ms": "30000",
        }
        kafka = KafkaBroker(CONTROLLER_ID, folder / "kafka", server.address, settings)
        log = TransactionLog(folder / "zookeeper" / "data")

        async def run() -> None:
            async with real_world(level, kafka.port, server.address, log, quiet_s=quiet_s) as world:
                for name in scenarios:
                    on_transcript(name, await run_scenario(world, name))

        try:
            kafka.start()
            kafka.wait_until_ready()
            asyncio.run(run())
        finally:
            kafka.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", choices=LEVELS, action="append")
    parser.add_argument("--scenario", choices=list(SCENARIOS), action="append")
    parser.add_argument("--print", action="store_true", help="print the transcripts; store nothing")
    parser.add_argument("--quiet-s", type=float, default=QUIET_S)
    arguments = parser.parse_args()
    if arguments.scenario and not arguments.print:
        parser.error("a golden file has all scenarios: --scenario needs --print")
    for level in arguments.level or LEVELS:
        found: dict[str, list[Any]] = {}
        with tempfile.TemporaryDirectory() as folder:
            scenarios = arguments.scenario or list(SCENARIOS)
            record(level, scenarios, Path(folder), found.__setitem__, arguments.quiet_s)
        if arguments.print:
            print(shown(found))
        else:
            write_golden(level, found)
            print(f"{level}: {sum(map(len, found.values()))} steps of {len(found)} scenarios")


if __name__ == "__main__":
    main()
