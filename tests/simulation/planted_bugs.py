"""Bugs that are planted in one decision of the broker each, to show that the simulation finds them.

    PYTHONPATH=src python -m tests.simulation.planted_bugs [NAME…]

runs seeds with each bug until one of them fails by the check that is to find it, and the same seed without the bug,
which must not fail. The checks are those of all runs; only the kinds of faults and clients are chosen, so that few
seeds are enough. The modules have to be plain Python: functions of compiled modules cannot be replaced.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.upkeep.control_requests import ControlRequests
from barnabas.coordination.controller import isr_changes, leadership
from barnabas.coordination.controller.events import Send
from barnabas.errors import NONE
from barnabas.model import NO_LEADER_EPOCH
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.replication.fetcher import Fetcher
from barnabas.replication.leader import PartitionLeader
from tests.simulation.cluster_scenario import ShortScenario
from tests.simulation.cluster_shapes import (
    Absences,
    Crashes,
    Expansions,
    Lags,
    Registrations,
    Sessions,
    Takeovers,
    Topics,
)
from tests.simulation.world import WORLDS_AT_ONCE, many_worlds


def truncation_to_the_high_watermark() -> Planted:
    follow = Fetcher.follow

    def planted(self: Fetcher, key: Any, **named: Any) -> Any:
        return follow(self, key, **{**named, "last_epoch": NO_LEADER_EPOCH})

    return Fetcher, "follow", planted


def watermark_over_the_committed_isr_while_it_expands() -> Planted:
    propose = PartitionLeader._propose

    def planted(self: PartitionLeader, in_sync: Any, maximal_in_sync: Any) -> Any:
        return propose(self, in_sync, self.in_sync)

    return PartitionLeader, "_propose", planted


def shrink_counted_before_its_answer() -> Planted:
    propose = PartitionLeader._propose

    def planted(self: PartitionLeader, in_sync: Any, maximal_in_sync: Any) -> Any:
        return propose(self, in_sync, in_sync)

    return PartitionLeader, "_propose", planted


def leader_epoch_check_off() -> Planted:
    """The controller takes changes of in-sync replicas from leaders that were replaced."""
    proposed = isr_changes._proposed

    def planted(state: Any, current: Any, broker_id: Any, proposal: Any, version: int) -> Any:
        if proposal.leader_epoch < current.leader_epoch:
            proposal.leader_epoch = current.leader_epoch
            proposal.partition_epoch = current.partition_epoch
        return proposed(state, current, broker_id, proposal, version)

    return isr_changes, "_proposed", planted


def controller_epoch_check_off() -> Planted:
    def planted(self: ReplicaManager, controller_epoch: int) -> bool:
        self.controller_epoch = controller_epoch
        return True

    return ReplicaManager, "admit_controller", planted


def broker_epoch_check_off() -> Planted:
    return ControlRequests, "_refusal", lambda self, request: NONE


def stale_answer_used() -> Planted:
    def planted(self: Fetcher, key: Any, phase: Any) -> Any:
        partition = self._partitions.get(key)
        return partition if partition is not None and partition.phase is phase else None

    return Fetcher, "_waiting", planted


def metadata_after_roles() -> Planted:
    welcome = leadership._welcome

    def planted(state: Any, came: Any) -> Generator[Any, Any, None]:
        ids = {broker.id for broker in came}
        changes: Any = welcome(state, came)
        result: Any = None
        held: dict[int, Any] = {}
        while True:
            try:
                effect = changes.send(result)
            except StopIteration:
                return
            if isinstance(effect, Send) and effect.broker_id in ids:
                if isinstance(effect.request, UpdateMetadataRequest) and effect.broker_id not in held:
                    held[effect.broker_id] = effect
                    result = None
                    continue
                result = yield effect
                if isinstance(effect.request, LeaderAndIsrRequest):
                    result = yield held[effect.broker_id]
            else:
                result = yield effect

    return leadership, "_welcome", planted


def follower_that_assigns_epochs() -> Planted:
    return Partition, "leads_in_epoch", property(lambda self: self.leader_epoch)


def answer_before_all_in_sync_replicas_have_it() -> Planted:
    return Partition, "check_replicated", lambda self, end_offset, leadership: True


def few_in_sync_replicas_are_enough() -> Planted:
    return PartitionLeader, "is_under_min_isr", lambda self, min_insync_replicas: False


def dead_member_in_the_isr() -> Planted:
    return leadership, "without_replicas", lambda partition, gone: partition


# What is replaced where, and by what.
Planted = tuple[Any, str, Any]


class Bug(NamedTuple):
    plant: Callable[[], Planted]
    scenario: type[ShortScenario]
    # What the check that finds it says.
    told: str
    # So many are enough to find it.
    seeds: int = 40

    @property
    def name(self) -> str:
        return self.plant.__name__


BUGS: Final = (
    Bug(truncation_to_the_high_watermark, Crashes, "is lost or changed in an in-sync replica"),
    Bug(
        watermark_over_the_committed_isr_while_it_expands,
        Expansions,
        "is in sync and has not what was exposed",
    ),
    Bug(shrink_counted_before_its_answer, Lags, "is in sync and has not what was exposed"),
    Bug(leader_epoch_check_off, Sessions, "takes a change of epoch"),
    Bug(controller_epoch_check_off, Takeovers, "obeys an earlier controller"),
    Bug(broker_epoch_check_off, Registrations, "obeys a request for an earlier one"),
    Bug(stale_answer_used, Topics, "that the leader of its epoch"),
    Bug(metadata_after_roles, Crashes, "not settled after"),
    Bug(follower_that_assigns_epochs, Crashes, "has begun the epoch"),
    Bug(dead_member_in_the_isr, Absences, "not settled after"),
    Bug(answer_before_all_in_sync_replicas_have_it, Crashes, "where the exposed records have None"),
    Bug(few_in_sync_replicas_are_enough, Lags, "in sync, fewer than"),
)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    where, name, replacement = bug.plant()
    kept = where.__dict__[name]
    setattr(where, name, replacement)
    try:
        yield
    finally:
        setattr(where, name, kept)


def find(bug: Bug) -> tuple[int, AssertionError]:
    """The first seed that fails with the bug as it should. Raises if none does, or if it fails without the bug."""
    others: list[str] = []
    with many_worlds() as collect:
        for seed in range(bug.seeds):
            with planted(bug):
                error = _failure(bug.scenario(seed))
            if isinstance(error, AssertionError) and bug.told in str(error):
                bug.scenario(seed).run()
                return seed, error
            if error is not None:
                others.append(f"{seed}: {error!r}"[:200])
            if seed % WORLDS_AT_ONCE == 0:
                collect()
    raise LookupError(f"{bug.name} is not found by {bug.seeds} seeds. Other failures: {others}")


def _failure(scenario: ShortScenario) -> Exception | None:
    try:
        scenario.run()
    except Exception as error:
        return error
    return None


def main(names: Sequence[str]) -> None:
    # Brokers warn about the faults.
    logging.disable(logging.CRITICAL)
    unknown = {*names} - {bug.name for bug in BUGS}
    if unknown:
        sys.exit(f"there is no bug {', '.join(unknown)}: choose from {', '.join(bug.name for bug in BUGS)}")
    for bug in BUGS:
        if not names or bug.name in names:
            start_s = time.process_time()
            try:
                seed, error = find(bug)
            except LookupError as missed:
                sys.exit(str(missed))
            spent_s = time.process_time() - start_s
            print(f"{bug.name}: found by seed {seed} in {spent_s:.1f} s: {str(error).splitlines()[0][:200]}")


if __name__ == "__main__":
    main(sys.argv[1:])
