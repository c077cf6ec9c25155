"""The events and the effects of the controller's machine.

Events are requests, news from the store, and the results of effects. The shell carries out effects, one after the
other. The machine waits for the result of `Write`, `ReadTopics`, `ReadTree` and `Ask` before it continues:

    effect       result
    Write        Stored, or StoreRefused
    ReadTopics   TopicsRead, or StoreRefused
    ReadTree     TreeRead, or StoreRefused
    Ask          Answered
    Send, Reply, Resign     none
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from barnabas.coordination.controller.snapshot import Snapshot, StoredTopic
from barnabas.coordination.metadata.image import BrokerImage, Uuid
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.coordination.planning.topic_creation import Charge, NewPartitions, NewTopic, free_of_charge
from barnabas.coordination.store.contract import Operation, StoreError
from barnabas.errors import KafkaError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest

NO_IDS: Final[Mapping[str, Uuid]] = MappingProxyType({})

ControlRequest: TypeAlias = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


@dataclass(frozen=True, slots=True)
class CreateTopics:
    new: Sequence[NewTopic]
    validate_only: bool = False
    charge: Charge = free_of_charge


@dataclass(frozen=True, slots=True)
class AdoptTopics:
    """Makes topics of directories that the store does not know, as when data was brought from elsewhere."""

    broker_id: BrokerId
    found: Mapping[TopicPartition, FoundPartition]


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """A topic that has an id in `ids` is deleted only if that is its id when the request has its turn."""

    names: Collection[str]
    ids: Mapping[str, Uuid] = field(default_factory=lambda: NO_IDS)
    charge: Charge = free_of_charge


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    new: Sequence[NewPartitions]
    validate_only: bool = False
    charge: Charge = free_of_charge


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    partitions: Collection[TopicPartition]
    election: ElectionType


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """None stops a reassignment that is under way."""

    targets: Mapping[TopicPartition, Sequence[int] | None]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The first request to a machine. Logs of brokers in `unclean` may have lost their ends."""

    snapshot: Snapshot
    unclean: Collection[BrokerId] = ()


Request: TypeAlias = (
    TakeOver
    | CreateTopics
    | AdoptTopics
    | DeleteTopics
    | CreatePartitions
    | ElectLeaders
    | AlterReassignments
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. Its reply has the same ticket."""

    ticket: int
    request: Request


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers that are registered now. One with another epoch than before has restarted."""

    brokers: Mapping[BrokerId, BrokerImage]


@dataclass(frozen=True, slots=True)
class TopicsListed:
    """Topics that the store has now. Brokers create some without asking the controller."""

    names: Collection[str]


@dataclass(frozen=True, slots=True)
class Stored:
    pass


@dataclass(frozen=True, slots=True)
class StoreRefused:
    error: StoreError


@dataclass(frozen=True, slots=True)
class TopicsRead:
    topics: Mapping[str, StoredTopic]


@dataclass(frozen=True, slots=True)
class TreeRead:
    """Nodes that exist, children before their parents."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class Answered:
    """None from a broker that is gone."""

    responses: Mapping[BrokerId, StopReplicaResponse | None]


@dataclass(frozen=True, slots=True)
class Closing:
    """The broker stops: requests that wait are refused."""


Result: TypeAlias = Stored | StoreRefused | TopicsRead | TreeRead | Answered
Event: TypeAlias = Asked | BrokersChanged | TopicsListed | Closing | Result


@dataclass(frozen=True, slots=True)
class Write:
    """One transaction. The first operation checks the controller's epoch."""

    operations: Sequence[Operation]


@dataclass(frozen=True, slots=True)
class ReadTopics:
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReadTree:
    """Asks which nodes exist at and below these."""

    roots: Sequence[str]


@dataclass(frozen=True, slots=True)
class Send:
    """Requests to one broker arrive in the order in which they were sent."""

    broker_id: BrokerId
    request: ControlRequest


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends requests and waits for the answers."""

    requests: Mapping[BrokerId, StopReplicaRequest]


@dataclass(frozen=True, slots=True)
class Reply:
    ticket: int
    # The result of the request, or the error of the whole request.
    outcome: Any | KafkaError


@dataclass(frozen=True, slots=True)
class Resign:
    """This broker is no longer the controller."""

    reason: KafkaError


Effect: TypeAlias = Write | ReadTopics | ReadTree | Send | Ask | Reply | Resign
