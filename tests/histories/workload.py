"""Clients of many kinds on one broker, killed and started again, as is the broker; all from a seed.

Nothing here sleeps for luck: between two faults every team (a producer, or the members of a group) has to get on with
its work, so a group or a transaction that hangs fails the run.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from barnabas.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.broker.raw_client import Asking
from tests.histories.checker import Anomaly, check
from tests.histories.client import EXIT_HUNG, Plan
from tests.histories.coordinators import begin_group, end_transactions
from tests.histories.final_state import read_final_state
from tests.histories.history import Event, read_events
from tests.waiting import Deadline

ROOT: Final = Path(__file__).parents[2]
# These bound a wait on a busy machine; they are not what is expected.
PROGRESS_TIMEOUT_S: Final = 180
STOP_TIMEOUT_S: Final = 240
POLL_S: Final = 0.02
STACK_S: Final = 1.0
# What a client has got done: a record confirmed, records received.
PROGRESS: Final = (b'["Acknowledged"', b'["Polled"')
PARTITIONS: Final = 3


class Running:
    """One client through all its incarnations, each with a file of its own."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.paths: list[Path] = []
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._progress = 0
        self._read_bytes = 0

    @property
    def team(self) -> str:
        return self.plan.group or self.plan.name

    def start(self) -> None:
        assert self._process is None
        incarnation = len(self.paths)
        path = self._folder / f"{self.plan.name}.{incarnation}"
        path.touch()
        self.paths.append(path)
        self._read_bytes = 0
        plan = replace(self.plan, incarnation=incarnation, path=str(path))
        with path.with_suffix(path.suffix + ".err").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.histories.client", plan.to_json()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check_alive(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code == EXIT_HUNG:
            self._process = None
            self.start()
        else:
            assert code is None, f"{self.plan.name} ended with {code}:\n{self._said()}"

    def begin_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        assert self._process is not None
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.plan.name} does not stop:\n{self.stack()}") from None
        self._process = None
        # A client that has only just begun to start knows of no order yet.
        assert code in (0, EXIT_HUNG, -signal.SIGTERM), f"{self.plan.name} ended with {code}:\n{self._said()}"

    def stack(self) -> str:
        """Where the client is, by its own account."""
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(STACK_S)
        return self._said()

    def _said(self) -> str:
        path = self.paths[-1]
        return path.with_suffix(path.suffix + ".err").read_text(errors="replace")[-4000:]

    def progress(self) -> int:
        return sum(
            line.startswith(PROGRESS) for path in self.paths for line in path.read_bytes().splitlines()
        )


class Service(Protocol):
    """What the clients use and faults hit: a broker, or a cluster of which `kill` ends one broker."""

    @property
    def address(self) -> str: ...

    def client(self) -> AbstractContextManager[Asking]: ...

    def kill(self) -> None: ...

    def start(self) -> None:
        """Starts again what was killed."""


class Workload:
    def __init__(
        self,
        broker: Service,
        plans: Sequence[Plan],
        folder: Path,
        seed: int,
        *,
        replication_factor: int = 1,
        share_of_brokers: float = 0.4,
    ) -> None:
        """`share_of_brokers` is how many of the faults hit a broker; the others hit a client."""
        self._broker = broker
        self._replication_factor = replication_factor
        self._share_of_brokers = share_of_brokers
        self._clients = [Running(replace(plan, address=broker.address, seed=seed), folder) for plan in plans]
        self._rng = random.Random(seed)

    def __enter__(self) -> Self:
        with self._broker.client() as client:
            topics = [
                CreatableTopic(
                    name=topic, num_partitions=PARTITIONS, replication_factor=self._replication_factor
                )
                for topic in sorted(self._topics())
            ]
            answer = client.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            assert [each.error_code for each in answer.topics] == [0] * len(topics), answer
            for group, topic in sorted({(each.plan.group, each.plan.topic) for each in self._clients}):
                if group:
                    begin_group(client, group, topic, PARTITIONS)
        for running in self._clients:
            running.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._clients:
            running.kill()

    def _topics(self) -> set[str]:
        plans = [running.plan for running in self._clients]
        return {plan.topic for plan in plans} | {plan.to_topic for plan in plans if plan.to_topic}

    def run(self, faults: int) -> None:
        """Kills the broker or a client, again and again, each time when everybody has got on since the last."""
        for _ in range(faults):
            self.wait_for_progress()
            time.sleep(self._rng.uniform(0, 0.3))
            if self._rng.random() < self._share_of_brokers:
                self._broker.kill()
                self._broker.start()
            else:
                running = self._rng.choice(self._clients)
                running.kill()
                running.start()
        self.wait_for_progress()

    def wait_for_progress(self) -> None:
        before = self._progress()
        deadline = Deadline(PROGRESS_TIMEOUT_S)
        while True:
            for running in self._clients:
                running.check_alive()
            after = self._progress()
            waiting = sorted(team for team, count in after.items() if count <= before[team])
            if not waiting:
                return
            if deadline.is_over:
                stacks = [each.stack() for each in self._clients if each.team in waiting]
                raise AssertionError(
                    f"nothing in {PROGRESS_TIMEOUT_S} s from {waiting}\n" + "\n".join(stacks)
                )
            time.sleep(POLL_S)

    def _progress(self) -> dict[str, int]:
        progress: dict[str, int] = defaultdict(int)
        for running in self._clients:
            progress[running.team] += running.progress()
        return progress

    def finish(self) -> tuple[list[Event], list[Anomaly]]:
        """Stops all clients in order and checks what they have written down against what the broker holds."""
        for running in self._clients:
            running.begin_stop()
        for running in self._clients:
            running.stop()
        plans = [running.plan for running in self._clients]
        with self._broker.client() as client:
            end_transactions(
                client, [plan.name for plan in plans if "transactions" in plan.role or plan.role == "copy"]
            )
            final = read_final_state(
                client,
                dict.fromkeys(sorted(self._topics()), PARTITIONS),
                sorted({plan.group for plan in plans if plan.group}),
            )
        events = list(read_events(path for running in self._clients for path in running.paths))
        return events, check(events, final)
