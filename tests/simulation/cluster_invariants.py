"""What must hold in a cluster at every step, under any faults, as long as leaders are elected among in-sync replicas.

- Brokers obey no lower controller, broker or leader epoch than before, also after they have lost a replica and got it
  again. In an epoch they have the role of the store. The controller takes no change from an earlier leader epoch.
- In the store, in-sync replicas are replicas, at least one, and the leader is one of them; epochs never decrease, and
  an epoch has one leader.
- Logs: see `replica_logs`.
- What a leader has exposed by its high watermark is in the logs of all in-sync replicas, of as many as
  `min.insync.replicas` says, and of every later leader. As many are in sync when it is exposed. A follower exposes
  nothing that no leader has exposed before.
- What was acknowledged with acks=all was exposed before, with the bytes that were sent.
- Once all faults are over: all replicas are in sync, preferred replicas lead, logs have the same bytes, and all brokers
  know what the store has. While a broker stays away, the same holds without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.upkeep.control_requests import ControlRequests
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.tree import (
    FEATURE,
    broker_path,
    config_path,
    decode_broker,
    decode_config,
    decode_features,
)
from barnabas.coordination.store.transaction import Node
from barnabas.errors import NONE
from barnabas.log.checkpoints import id_to_text
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import BrokerId, TopicPartition
from barnabas.records.header import iterate_headers
from tests.simulation.broker import SimulatedBroker
from tests.simulation.cluster import SimulatedBrokers
from tests.simulation.replica_logs import PartitionLogs
from tests.simulation.world import Process, World

DELETIONS: Final = "/admin/delete_topics/"
STATE_PATH: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
TOPIC_PATH: Final = re.compile(r"/brokers/topics/([^/]+)")
NO_BROKER: Final = -1


class StoredState(NamedTuple):
    """A partition's state in the store."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int


class Seen(NamedTuple):
    """A replica when it was looked at last."""

    leader_epoch: int
    leader: int
    # As its leader knows them; None if the replica does not lead.
    in_sync: tuple[BrokerId, ...] | None
    high_watermark: int
    log_end_offset: int
    log: PartitionLog

    @property
    def is_leading(self) -> bool:
        return self.in_sync is not None


class _Watched:
    """A process of a broker."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.controller_epoch = 0
        self.seen: dict[Partition, Seen] = {}
        # The highest leader epoch of each partition. A replica that is stopped and comes again is another object.
        self.leader_epochs: dict[TopicPartition, int] = {}


class Invariants:
    def __init__(self, cluster: SimulatedBrokers) -> None:
        self._cluster = cluster
        self.states: dict[TopicPartition, StoredState] = {}
        self.logs: dict[TopicPartition, PartitionLogs] = {}
        self._topics: dict[str, dict[str, Any]] = {}
        # Topics that are marked for deletion: brokers delete their logs, and promise nothing about the records.
        self._deleting: set[str] = set()
        # The processes that have led, by partition and leader epoch.
        self._leaders: dict[tuple[TopicPartition, int], Process] = {}
        self._watched: dict[BrokerId, _Watched] = {}
        cluster.ensemble.on_change = self.on_store_change
        cluster.on_acknowledged = self.on_acknowledged

    def on_store_change(self, path: str, node: Node | None) -> None:
        if path.startswith(DELETIONS):
            topic = path.removeprefix(DELETIONS)
            if node is None:
                self._deleting.discard(topic)
            else:
                self._deleting.add(topic)
        if not path.startswith("/brokers/topics/"):
            return
        if found := STATE_PATH.fullmatch(path):
            self._on_state(TopicPartition(found[1], int(found[2])), node)
        elif found := TOPIC_PATH.fullmatch(path):
            if node is None:
                self._topics.pop(found[1], None)
            else:
                self._topics[found[1]] = json.loads(node.data)

    def _on_state(self, key: TopicPartition, node: Node | None) -> None:
        if node is None:
            self._forget(key)
            return
        data = json.loads(node.data)
        state = StoredState(
            data["leader"], data["leader_epoch"], tuple(data["isr"]), data["controller_epoch"], node.version
        )
        replicas = self.replicas(key)
        assert state.isr, f"{key} has no in-sync replica: {state}"
        assert set(state.isr) <= set(replicas), f"{key} has replicas {replicas}, but {state}"
        assert len(set(state.isr)) == len(state.isr), f"{key}: {state}"
        assert state.leader == NO_BROKER or state.leader in state.isr, (
            f"the leader of {key} is not in sync: {state}"
        )
        before = self.states.get(key)
        if before is not None:
            assert state.leader_epoch >= before.leader_epoch, f"{key}: {before}, then {state}"
            assert state.controller_epoch >= before.controller_epoch, f"{key}: {before}, then {state}"
            if state.leader_epoch == before.leader_epoch:
                assert state.leader == before.leader, f"{key}: {before}, then {state}"
        self.states[key] = state
        logs = self.logs.get(key)
        if logs is None:
            logs = self.logs[key] = PartitionLogs(str(key))
        logs.leaders[state.leader_epoch] = state.leader
        self._check_in_sync(key, logs)

    def _forget(self, key: TopicPartition) -> None:
        """The topic is deleted. One of the same name is another one."""
        self.states.pop(key, None)
        self.logs.pop(key, None)
        self._leaders = {at: leader for at, leader in self._leaders.items() if at[0] != key}
        for watched in self._watched.values():
            watched.leader_epochs.pop(key, None)
            watched.seen = {
                partition: seen
                for partition, seen in watched.seen.items()
                if partition.topic_partition != key
            }

    def replicas(self, key: TopicPartition) -> tuple[int, ...]:
        return tuple(self._topics[key.topic]["partitions"][str(key.partition)])

    def _is_of_topic(self, partition: Partition) -> bool:
        """Whether the topic is the one in the store, and not one of its name that has been deleted."""
        key = partition.topic_partition
        return key in self.states and self._topics[key.topic]["topic_id"] == id_to_text(partition.topic_id)

    def check_broker(self, broker_id: BrokerId, broker: SimulatedBroker) -> None:
        """After each turn of the broker."""
        parts = broker.server.broker
        replicas = parts.replicas
        watched = self._watched.get(broker_id)
        if watched is None or watched.process is not broker.process:
            watched = self._watched[broker_id] = _Watched(broker.process)
            _watch_requests(broker_id, parts.control, self._cluster.world)
            _watch_proposals(broker_id, parts.controller, self._cluster.world)
        if replicas.controller_epoch != watched.controller_epoch:
            assert replicas.controller_epoch > watched.controller_epoch, (
                f"broker {broker_id} obeys an earlier controller"
            )
            watched.controller_epoch = replicas.controller_epoch
        known = watched.seen
        for partition in replicas:
            log = partition.log
            if log is None:
                continue
            leadership = partition.leadership
            seen = (
                partition.leader_epoch,
                partition.leader,
                None if leadership is None else leadership.in_sync,
                log.high_watermark,
                log.log_end_offset,
                log,
            )
            before = known.get(partition)
            if before != seen and self._is_of_topic(partition):
                after = known[partition] = Seen._make(seen)
                self._check_replica(broker_id, partition, before, after)

    def _check_replica(
        self, broker_id: BrokerId, partition: Partition, before: Seen | None, seen: Seen
    ) -> None:
        key = partition.topic_partition
        state, logs = self.states[key], self.logs[key]

        def where() -> str:
            return f"{key} on broker {broker_id}: {before}, then {seen}; {state}"

        self._check_role(broker_id, key, before, seen, where)
        if key.topic in self._deleting:
            return
        if before is None or before.log_end_offset != seen.log_end_offset or before.log is not seen.log:
            logs.update(
                broker_id, seen.log, seen.log_end_offset, lambda epoch: self._has_leader_died(key, epoch)
            )
            if broker_id in state.isr:
                assert logs.has_exposed(broker_id), (
                    f"what was exposed up to {logs.exposed_end} is lost or changed in an in-sync replica: {where()}"
                )
        if not seen.is_leading:
            assert seen.high_watermark <= logs.exposed_end, (
                f"a follower exposes what no leader has, {logs.exposed_end}: {where()}"
            )
            return
        # A leader that learns of its role when there is a later one exposes nothing.
        if seen.leader_epoch >= state.leader_epoch:
            assert logs.has_exposed(broker_id), (
                f"what was exposed up to {logs.exposed_end} is lost or changed: {where()}"
            )
        if seen.high_watermark > logs.exposed_end:
            logs.expose(broker_id, seen.high_watermark)
            self._check_in_sync(key, logs)
            needed = min(seen.log.config.min_insync_replicas, len(self.replicas(key)))
            # Within one turn it may have exposed records and then learned that fewer are in sync.
            in_sync = max((each.in_sync or () for each in (before, seen) if each is not None), key=len)
            assert len(in_sync) >= needed, f"exposed with {in_sync} in sync, fewer than {needed}: {where()}"
            have = [each for each in logs.replicas if logs.has_exposed(each)]
            assert len(have) >= needed, f"exposed with fewer replicas than {needed}, on {have}: {where()}"

    def _check_role(
        self,
        broker_id: BrokerId,
        key: TopicPartition,
        before: Seen | None,
        seen: Seen,
        where: Callable[[], str],
    ) -> None:
        epochs = self._watched[broker_id].leader_epochs
        known = epochs.get(key, seen.leader_epoch)
        assert seen.leader_epoch >= known, f"an earlier leader epoch than {known}: {where()}"
        epochs[key] = seen.leader_epoch
        if seen.leader != NO_BROKER:
            leader = self.logs[key].leaders.get(seen.leader_epoch)
            assert leader == seen.leader, f"a role that the store has not given: {where()}"
        if seen.is_leading:
            assert seen.leader == broker_id, where()
            self._leaders[key, seen.leader_epoch] = self._watched[broker_id].process

    def _has_leader_died(self, key: TopicPartition, leader_epoch: int) -> bool:
        leader = self._leaders.get((key, leader_epoch))
        return leader is not None and not leader.is_alive

    def _check_in_sync(self, key: TopicPartition, logs: PartitionLogs) -> None:
        """Killed brokers keep their logs, so they count too."""
        if key.topic in self._deleting:
            return
        state = self.states[key]
        for each in state.isr:
            assert logs.has_exposed(BrokerId(each)), (
                f"broker {each} is in sync and has not what was exposed up to {logs.exposed_end}, but ends at"
                f" {logs.of(BrokerId(each)).end_offset}: {key}, {state}"
            )

    def on_acknowledged(self, topic: str, partition: int, base_offset: int, records: bytes) -> None:
        """A client has got the answer to a batch that it has produced with acks=all."""
        if topic in self._deleting:
            return
        logs = self.logs[TopicPartition(topic, partition)]
        [header] = iterate_headers(records)
        found = logs.exposed_crcs.get(base_offset)
        assert found == header.crc, (
            f"acknowledged at {base_offset} of {logs.name}, where the exposed records have {found}"
        )

    def problems(self, away: SimulatedBroker | None = None) -> Iterator[str]:
        """What is not yet as it must be once all faults are over, while one broker may stay away."""
        cluster = self._cluster
        started = dict(cluster.running())
        if started.keys() != {number for number, each in enumerate(cluster.brokers) if each is not away}:
            yield f"only {sorted(started)} run"
            return
        tree = cluster.ensemble.tree
        controller = json.loads(tree["/controller"].data)["brokerid"] if "/controller" in tree else NO_BROKER
        for number, broker in started.items():
            image = broker.server.broker.image
            known = (sorted(image.brokers), image.controller_id, sorted(image.topics))
            if known != (sorted(started), controller, sorted(self._topics)):
                yield f"broker {number} knows {known}, controller {controller}, topics {sorted(self._topics)}"
        yield from self._cache_problems(started)
        for topic in self._deleting:
            yield f"{topic} is being deleted"
        for key, state in self.states.items():
            replicas = self.replicas(key)
            live = [each for each in replicas if each in started]
            if not started.keys() & set(state.isr):
                # Nobody that is there may lead it.
                continue
            if sorted(state.isr) != sorted(live):
                yield f"{key} has live replicas {live}, in sync {state.isr}"
            elif state.leader not in live or (replicas[0] in live and state.leader != replicas[0]):
                yield f"{key} has replicas {replicas}, live {live}, and leader {state.leader}"
            else:
                yield from self._replica_problems(key, state, replicas, live)

    def _cache_problems(self, started: Mapping[BrokerId, SimulatedBroker]) -> Iterator[str]:
        """What brokers know wrongly of settings, addresses and features."""
        tree = self._cluster.ensemble.tree
        paths = {name: config_path("topics", name) for name in self._topics}
        configs = {
            name: decode_config(path, tree[path].data) if path in tree else {} for name, path in paths.items()
        }
        endpoints = {
            each: decode_broker(each, tree[broker_path(each)].data).endpoints
            for each in started
            if broker_path(each) in tree
        }
        node = tree.get(FEATURE)
        features = None if node is None else (node.version, decode_features(node.data).features)
        for number, broker in started.items():
            image = broker.server.broker.image
            for name, config in configs.items():
                # A broker without a replica reads the settings when it is asked for them.
                has_replica = any(number in each for each in self._topics[name]["partitions"].values())
                if has_replica and image.topic_config(name) != config:
                    yield f"broker {number} knows {image.topic_config(name)} of {name}, the store has {config}"
            known = {each.id: each.endpoints for each in image.brokers.values()}
            if known != endpoints:
                yield f"broker {number} knows the addresses {known}, the store has {endpoints}"
            if features is not None and (image.features.epoch, image.features.levels) != features:
                yield f"broker {number} knows {image.features}, the store has {features}"

    def _replica_problems(
        self, key: TopicPartition, state: StoredState, replicas: tuple[int, ...], live: list[int]
    ) -> Iterator[str]:
        leader = self._cluster.replica(BrokerId(state.leader), key)
        for number, broker in self._cluster.running():
            topic = broker.server.broker.image.topics.get(key.topic)
            known = dict(enumerate(() if topic is None else topic.partitions)).get(key.partition)
            if (
                topic is None
                or known is None
                or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch)
                or sorted(known.isr) != sorted(state.isr)
                or known.replicas != replicas
                or id_to_text(topic.id) != self._topics[key.topic]["topic_id"]
            ):
                yield f"broker {number} knows {known} of {key}, the store has {state}"
        for each in live:
            replica = self._cluster.replica(BrokerId(each), key)
            if replica is None or replica.log is None or leader is None or leader.log is None:
                yield f"broker {each} has no log of {key}"
                continue
            ends = (replica.log.log_end_offset, replica.log.high_watermark)
            if ends != (leader.log.log_end_offset, leader.log.log_end_offset):
                yield f"broker {each} has {key} up to {ends}, its leader up to {leader.log.log_end_offset}"

    def check_logs(self) -> None:
        """Once there are no problems: all replicas of a partition have the same bytes, read again from their start."""
        for key, logs in self.logs.items():
            for each in self.replicas(key):
                replica = self._cluster.replica(BrokerId(each), key)
                assert replica is not None
                assert replica.log is not None
                known = logs.of(BrokerId(each))
                known.batches.clear()
                known.update(replica.log, replica.log.log_end_offset)
                assert known.end_offset == logs.exposed_end, f"{key} on {each} ends at {known.end_offset}"
                assert logs.has_exposed(BrokerId(each)), f"{key} on {each} is not what was exposed"


def _watch_requests(broker_id: BrokerId, requests: ControlRequests, world: World) -> None:
    """Has the broker's answers to its controller checked: it obeys no request for an earlier registration."""
    take_roles, stop_replica, update = requests._take_roles, requests.stop_replica, requests.update_metadata

    def check(request: Any, response: Any, epoch: int) -> Any:
        if response.error_code == NONE and 0 <= request.broker_epoch < epoch:
            # The broker would log what a handler raises, and go on.
            world.failures.append(
                AssertionError(
                    f"broker {broker_id} of epoch {epoch} obeys a request for an earlier one: {request}"
                )
            )
        return response

    async def checked_roles(request: Any) -> Any:
        response = await take_roles(request)
        return check(request, response, requests._registration.epoch)

    async def checked_stop(request: Any) -> Any:
        epoch = requests._registration.epoch
        return check(request, await stop_replica(request), epoch)

    def checked_update(request: Any) -> Any:
        return check(request, update(request), requests._registration.epoch)

    requests._take_roles = checked_roles  # type: ignore[method-assign]
    requests.stop_replica = checked_stop  # type: ignore[method-assign]
    requests.update_metadata = checked_update  # type: ignore[method-assign]


def _watch_proposals(broker_id: BrokerId, controller: Controller, world: World) -> None:
    """Has the controller's answers to leaders checked: it takes a change only in the epoch of its leader."""
    alter_partition = controller.alter_partition

    async def checked(request: Any, *version: int) -> Any:
        # By name or by id, as the version has it; an answer has its own order, and here both.
        proposed = {
            (topic.topic_name or topic.topic_id, each.partition_index): each.leader_epoch
            for topic in request.topics
            for each in topic.partitions
        }
        response = await alter_partition(request, *version)
        for topic in response.topics:
            for answer in topic.partitions:
                names = [(each, answer.partition_index) for each in (topic.topic_name, topic.topic_id)]
                [epoch] = {proposed[each] for each in names if each in proposed}
                if answer.error_code == NONE and answer.leader_epoch != epoch:
                    world.failures.append(
                        AssertionError(
                            f"controller {broker_id} takes a change of epoch {epoch} in epoch {answer.leader_epoch}"
                        )
                    )
        return response

    controller.alter_partition = checked  # type: ignore[method-assign, assignment]
