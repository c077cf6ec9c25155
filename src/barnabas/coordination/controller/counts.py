"""What a controller counts in its cluster, for metrics. A broker that is not the controller counts nothing."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.coordination.controller.state import ControllerState


class Counts(NamedTuple):
    active_brokers: int = 0
    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    # Partitions that another replica leads than the first of the assignment.
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    # Those whose deletion has to wait for a broker, or for the end of a reassignment.
    topics_ineligible_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0


NOTHING: Final = Counts()


def count(state: ControllerState) -> Counts:
    partitions = offline = imbalanced = 0
    for topic in state.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            partitions += 1
            leader = partition.leader
            if state.is_offline(topic.name, index, leader) and leader not in state.shutting_down:
                offline += 1
            if partition.replicas and leader != partition.replicas[0]:
                imbalanced += 1
    deletions = state.deleting.values()
    ineligible = [len(each.remaining - each.asked) for each in deletions]
    return Counts(
        active_brokers=len(state.image.brokers),
        topics=len(state.image.topics) + len(state.deleting),
        partitions=partitions + sum(len(each.topic.partitions) for each in deletions),
        offline_partitions=offline,
        preferred_replica_imbalance=imbalanced,
        topics_to_delete=len(state.deleting),
        replicas_to_delete=sum(len(each.remaining) for each in deletions),
        topics_ineligible_to_delete=sum(map(bool, ineligible)),
        replicas_ineligible_to_delete=sum(ineligible),
    )
