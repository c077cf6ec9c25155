"""What happens to the controller of a cluster of three brokers, in steps. Brokers 1 to 3 are stubs.

The controller itself is broker 0, and has no replicas.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.coordination.metadata.tree import (
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    LOG_DIR_EVENT_PREFIX,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    encode_uuid,
    topic_path,
)
from barnabas.model import TopicPartition
from tests.transcripts.golden import shown
from tests.transcripts.world import World

PREFERRED, UNCLEAN = 0, 1
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
S0 = TopicPartition("solo", 0)
# Each broker leads one.
SPREAD: Final = {"t": {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}}
# The only replica of each partition.
SOLO: Final = {"solo": {0: [1], 1: [2], 2: [3]}}


async def start(world: World, *topics: Mapping[str, Mapping[int, Sequence[int]]]) -> None:
    """A controller is elected, and creates these topics."""
    await world.step("a controller is elected", world.open_election())
    for each in topics:
        await world.step(f"create {', '.join(each)}", world.create_topics(each))


async def join(world: World) -> None:
    await start(world)
    await world.step("broker 1 joins", world.register(1))
    await world.step("broker 2 joins", world.register(2))
    await world.step("create t", world.create_topics({"t": {0: [1, 2], 1: [2, 1]}}))
    await world.step("broker 3 joins without replicas", world.register(3))
    await world.step("broker 2 leaves", world.leave(2))
    await world.step("broker 2 joins again", world.register(2))
    await world.step("broker 2 is in sync again", world.alter_isr(1, {T0: [1, 2], T1: [1, 2]}))


async def addresses(world: World) -> None:
    """Registrations that change nothing for any partition."""
    await start(world, {"t": {0: [1, 2]}})
    await world.step("broker 3, which has no replicas, leaves", world.leave(3))
    await world.step("broker 3 joins", world.register(3))
    await world.step("broker 2 has another address", world.move(2, "localhost"))


async def bounce(world: World) -> None:
    await start(world, SPREAD, SOLO)
    await world.step("broker 2 bounces", world.register(2))
    await world.step("broker 2 is in sync in t-0", world.alter_isr(1, {T0: [1, 3, 2]}))
    await world.step("broker 1 bounces", world.register(1))
    await world.step("broker 3 bounces", world.register(3))


async def crash(world: World) -> None:
    await start(world, SPREAD, SOLO)
    await world.step("broker 3 crashes", world.leave(3))
    await world.step("broker 2 crashes", world.leave(2))
    await world.step("broker 1 crashes", world.leave(1))
    await world.step("broker 2, which is not in sync, comes back", world.register(2))
    await world.step("broker 1 comes back", world.register(1))
    await world.step("broker 3 comes back", world.register(3))
    await world.step("all are in sync", world.alter_isr(1, {T0: [1, 2, 3], T1: [1, 2, 3], T2: [1, 2, 3]}))
    await world.step("broker 2, which leads one partition, crashes again", world.leave(2))


async def follower_crash(world: World) -> None:
    """A broker that leads nothing."""
    await start(world, {"t": {0: [1, 2, 3], 1: [2, 1, 3]}})
    await world.step("broker 3 is not in sync", world.alter_isr(1, {T0: [1, 2]}))
    await world.step("broker 3 crashes", world.leave(3))
    await world.step("broker 3 comes back", world.register(3))
    await world.step("broker 3 is in sync", world.alter_isr(1, {T0: [1, 2, 3]}))
    await world.step("broker 3 crashes", world.leave(3))


async def creation(world: World) -> None:
    await start(world)
    settings = {"retention.ms": "1000", "cleanup.policy": "compact"}
    await world.step("create t", world.create_topics(SPREAD, settings))
    await world.step("create two topics", world.create_topics({"a": {0: [1]}, "b": {0: [2, 3], 1: [3, 1]}}))
    await world.step("create t again", world.create_topics(SPREAD))
    await world.step("broker 3 leaves", world.leave(3))
    await world.step(
        "a topic of another broker",
        world.write("/config/topics/auto", {"version": 1, "config": {}}),
        world.write("/brokers/topics/auto", topic_node({0: [3, 1], 1: [2, 3], 2: [3]}, 1)),
    )
    await world.step(
        "a topic of an old broker, without an id",
        world.write("/brokers/topics/old", {"version": 1, "partitions": {"0": [1, 2]}}),
    )
    await world.step("broker 3 joins", world.register(3))


async def growth(world: World) -> None:
    await start(world, {"t": {0: [1, 2]}})
    await world.step("two more partitions", world.create_partitions("t", 3, [[2, 3], [3, 1]]))
    await world.step("broker 1 leaves", world.leave(1))
    await world.step("an old tool adds a partition", grow(world, "t", [1, 3]))
    await world.step("too few partitions", world.create_partitions("t", 2, []))


async def deletion(world: World) -> None:
    await start(world, SPREAD, {"u": {0: [1, 2]}})
    await world.step("delete t", world.delete_topics("t"))
    await world.step("create t again", world.create_topics({"t": {0: [3, 2]}}))
    await world.step("a mark for u", world.write(f"{DELETE_TOPICS}/u", None))
    await world.step("a mark for an unknown topic", world.write(f"{DELETE_TOPICS}/unknown", None))
    await world.step("broker 2 crashes", world.leave(2))
    await world.step("delete t", world.delete_topics("t"))
    await world.step("broker 2 comes back", world.register(2))
    await world.step("create t again", world.create_topics({"t": {0: [3, 2]}}))


async def stuck_deletion(world: World) -> None:
    """A broker cannot delete a replica."""
    await start(world, {"t": {0: [1, 2], 1: [2, 1]}})
    world.stub(2).stuck = {T0}
    await world.step("delete t", world.delete_topics("t"))
    world.stub(2).stuck = set()
    await world.step("broker 2 bounces", world.register(2))


async def reassignment(world: World) -> None:
    await start(world, {"t": {0: [1, 2], 1: [1, 2], 2: [2, 1]}})
    await world.step("move t-0 away from its leader", world.reassign({T0: [3, 2]}))
    await world.step("broker 3 is in sync", world.alter_isr(1, {T0: [1, 2, 3]}))
    await world.step("the leader of t-1 stays", world.reassign({T1: [1, 3]}))
    await world.step("broker 3 is in sync", world.alter_isr(1, {T1: [1, 2, 3]}))
    await world.step("another order", world.reassign({T2: [1, 2]}))
    await world.step("more replicas", world.reassign({T2: [1, 2, 3]}))
    await world.step("broker 3 is in sync", world.alter_isr(2, {T2: [2, 1, 3]}))
    await world.step("fewer replicas", world.reassign({T2: [3]}))
    await world.step("an unknown broker", world.reassign({T2: [3, 7]}))


async def reassignment_by_node(world: World) -> None:
    """As tools before Kafka 2.4 did it."""
    await start(world, {"t": {0: [1, 2]}})
    node = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}]}
    await world.step("a node", world.write(REASSIGN_PARTITIONS, node))
    await world.step("broker 3 is in sync", world.alter_isr(1, {T0: [1, 2, 3]}))


async def cancellation(world: World) -> None:
    await start(world, {"t": {0: [1, 2], 1: [2, 1]}})
    await world.step("move t-0", world.reassign({T0: [3, 2]}))
    await world.step("move t-1", world.reassign({T1: [3, 1]}))
    await world.step("cancel t-0", world.reassign({T0: None}))
    await world.step("cancel it again", world.reassign({T0: None}))
    await world.step("broker 3 is in sync in t-1", world.alter_isr(2, {T1: [2, 1, 3]}))
    await world.step("another target of t-0", world.reassign({T0: [2, 3]}))
    await world.step("replace it", world.reassign({T0: [2, 1]}))


async def reassignment_and_crashes(world: World) -> None:
    await start(world, {"t": {0: [1, 2]}})
    await world.step("move it", world.reassign({T0: [2, 3]}))
    await world.step("broker 3 crashes", world.leave(3))
    await world.step("broker 3 comes back", world.register(3))
    await world.step("delete t while it moves", world.write(f"{DELETE_TOPICS}/t", None))


async def preferred(world: World) -> None:
    await start(world, SPREAD)
    await world.step("broker 1 bounces", world.register(1))
    await world.step("its leader is not in sync", world.elect([T0], PREFERRED))
    await world.step("broker 1 is in sync", world.alter_isr(2, {T0: [2, 3, 1]}))
    await world.step("elect it", world.elect([T0, T1], PREFERRED))
    await world.step("an unknown partition", world.elect([TopicPartition("t", 7)], PREFERRED))
    await world.step("broker 2 bounces", world.register(2))
    await world.step("broker 2 is in sync", world.alter_isr(3, {T1: [3, 1, 2]}))
    node = {"version": 1, "partitions": [{"topic": "t", "partition": 1}]}
    await world.step("an old tool asks for it", world.write(PREFERRED_REPLICA_ELECTION, node))


async def unclean(world: World) -> None:
    await start(world, {"t": {0: [1, 2, 3], 1: [1, 3, 2]}})
    await world.step("broker 1 alone is in sync", world.alter_isr(1, {T0: [1], T1: [1]}))
    await world.step("broker 1 crashes", world.leave(1))
    await world.step("elect t-0", world.elect([T0], UNCLEAN))
    await world.step("elect it again", world.elect([T0], UNCLEAN))
    settings = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
    await world.step(
        "t allows unclean leaders",
        world.write("/config/topics/t", settings, is_new=False),
        world.write(
            "/config/changes/config_change_", {"version": 2, "entity_path": "topics/t"}, is_sequential=True
        ),
    )
    await world.step("the leader has recovered", world.alter_isr(2, {T0: [2]}))
    await world.step("broker 1 comes back", world.register(1))
    await world.step("broker 2 crashes", world.leave(2))
    await world.step("broker 3 crashes", world.leave(3))


async def controlled_shutdown(world: World) -> None:
    await start(world, SPREAD, SOLO)
    await world.step("broker 2 asks", world.shut_down(2))
    await world.step("broker 2 asks again", world.shut_down(2))
    await world.step("broker 2 leaves", world.leave(2))
    await world.step("broker 2 joins", world.register(2))
    await world.step("broker 3 asks", world.shut_down(3))
    await world.step("create u meanwhile", world.create_topics({"u": {0: [3, 1]}}))
    await world.step("broker 1 asks, and nobody can take over", world.shut_down(1))
    await world.step("broker 1 leaves", world.leave(1))
    await world.step("broker 3 leaves", world.leave(3))


async def directory_failure(world: World) -> None:
    await start(world, SPREAD)
    world.stub(1).failed = {T0, T1}
    notice = {"version": 1, "broker": 1, "event": 1}
    await world.step("broker 1 reports it", world.write(LOG_DIR_EVENT_PREFIX, notice, is_sequential=True))
    await world.step("broker 2 bounces", world.register(2))
    world.stub(1).failed = set()
    await world.step("broker 1 restarts with a new disk", world.register(1))
    world.stub(3).failed = {T2}
    await world.step("create a topic", world.create_topics({"u": {0: [3, 1]}}))
    notice = {"version": 1, "broker": 3, "event": 1}
    await world.step("broker 3 reports one", world.write(LOG_DIR_EVENT_PREFIX, notice, is_sequential=True))


async def isr_changes(world: World) -> None:
    await start(world, SPREAD)
    await world.step("shrink", world.alter_isr(1, {T0: [1, 2]}))
    await world.step("the same again", world.alter_isr(1, {T0: [1, 2]}))
    await world.step("expand", world.alter_isr(1, {T0: [1, 2, 3]}))
    await world.step("an old partition epoch", world.alter_isr(1, {T0: [1]}, partition_epoch=0))
    await world.step("an old leader epoch", world.alter_isr(1, {T0: [1]}, leader_epoch=-1))
    await world.step("a later leader epoch", world.alter_isr(1, {T0: [1]}, leader_epoch=9))
    await world.step("an old broker epoch", world.alter_isr(1, {T0: [1]}, broker_epoch=1))
    await world.step("broker 3 asks to shut down", world.shut_down(3))
    await world.step("it may not join", world.alter_isr(1, {T0: [1, 2, 3]}))
    await world.step("one that recovers", world.alter_isr(1, {T0: [1]}, leader_recovery_state=1))


async def takeover(world: World) -> None:
    await start(world, SPREAD, SOLO)
    await world.step("the same broker is elected again", world.depose())
    await world.vacate()
    await world.leave(2)
    await world.step("broker 2 is gone when a controller is elected", world.open_election())
    await world.vacate()
    await world.register(2)
    await world.leave(1)
    await world.step("broker 2 is back, broker 1 is gone", world.open_election())


async def takeover_of_unfinished(world: World) -> None:
    """The last controller has left things undone."""
    epoch = int((await world.tree.get(CONTROLLER_EPOCH))[0])
    await world.write("/brokers/topics/new", topic_node({0: [1, 2], 1: [3]}, 1))
    await put_topic(world, "marked", {0: [1, 2]}, 2, epoch)
    await world.write(f"{DELETE_TOPICS}/marked", None)
    await put_topic(
        world, "moved", {0: [1, 2, 3]}, 3, epoch, adding={"0": [3]}, removing={"0": [1]}, isr=[1, 2]
    )
    await put_topic(world, "moved-both", {0: [1, 2, 3]}, 4, epoch, adding={"0": [3]}, removing={"0": [1]})
    await put_topic(world, "elected", {0: [2, 1]}, 5, epoch, leader=1)
    node = {"version": 1, "partitions": [{"topic": "elected", "partition": 0}]}
    await world.write(PREFERRED_REPLICA_ELECTION, node)
    await put_topic(
        world, "both", {0: [1, 2, 3]}, 6, epoch, adding={"0": [3]}, removing={"0": [1]}, isr=[1, 2]
    )
    await world.write(f"{DELETE_TOPICS}/both", None)
    notice = {"version": 1, "broker": 2, "event": 1}
    await world.write(LOG_DIR_EVENT_PREFIX, notice, is_sequential=True)
    await start(world)
    both = TopicPartition("both", 0)
    if await world.tree.exists(topic_path("both")) is None:
        # Our controller has not waited for the move.
        return
    await world.step("the move of a marked topic is complete", world.alter_isr(1, {both: [1, 2, 3]}))


async def grow(world: World, topic: str, replicas: Sequence[int]) -> None:
    """Adds a partition to the node of a topic."""
    path = topic_path(topic)
    node = json.loads((await world.tree.get(path))[0])
    node["partitions"][str(len(node["partitions"]))] = list(replicas)
    await world.write(path, node, is_new=False)


async def put_topic(
    world: World, name: str, assignment: Mapping[int, Sequence[int]], number: int, epoch: int, **other: Any
) -> None:
    """A topic that an earlier controller has created."""
    await world.write(topic_path(name), topic_node(assignment, number, **other))
    await world.write(f"{topic_path(name)}/partitions", None)
    for index, replicas in assignment.items():
        path = f"{topic_path(name)}/partitions/{index}"
        await world.write(path, None)
        state = {
            "controller_epoch": epoch,
            "leader": other.get("leader", replicas[0]),
            "version": 1,
            "leader_epoch": 0,
            "isr": other.get("isr", replicas),
        }
        await world.write(f"{path}/state", state)


def topic_node(assignment: Mapping[int, Sequence[int]], number: int, **other: Any) -> dict[str, Any]:
    return {
        "version": 3,
        "topic_id": encode_uuid(number.to_bytes(16, "big")),
        "partitions": {str(index): list(replicas) for index, replicas in assignment.items()},
        "adding_replicas": other.get("adding", {}),
        "removing_replicas": other.get("removing", {}),
    }


Scenario = Callable[[World], Awaitable[None]]
SCENARIOS: Final[dict[str, Scenario]] = {
    each.__name__: each
    for each in (
        join,
        addresses,
        bounce,
        crash,
        follower_crash,
        creation,
        growth,
        deletion,
        stuck_deletion,
        reassignment,
        reassignment_by_node,
        cancellation,
        reassignment_and_crashes,
        preferred,
        unclean,
        controlled_shutdown,
        directory_failure,
        isr_changes,
        takeover,
        takeover_of_unfinished,
    )
}


async def run_scenario(world: World, name: str) -> list[dict[str, Any]]:
    """The transcript of a scenario."""
    await world.begin(() if name == "join" else (1, 2, 3))
    try:
        await SCENARIOS[name](world)
    except Exception:
        print(shown({name: world.steps}))
        raise
    return world.steps
