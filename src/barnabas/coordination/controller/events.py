"""The events and the effects of the controller's machine.

Events are requests, news from the store, answers of brokers, timers, and the results of effects. The shell carries out
effects, one after the other. The machine waits for the results of these before it continues:

    effect       result
    Write        Stored, or StoreRefused
    WriteAll     StoredAll
    ReadTopics   TopicsRead, or StoreRefused
    ReadNodes    NodesRead, or StoreRefused
    ReadTree     TreeRead, or StoreRefused

Requests that only a cluster has are functions of the controller's state, which return the change: then the module of
the change is loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.coordination.controller.snapshot import Snapshot, StoredTopic
from barnabas.coordination.metadata.image import BrokerImage, Uuid
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.coordination.planning.topic_creation import Charge, NewPartitions, NewTopic, free_of_charge
from barnabas.coordination.store.contract import Operation, Stat, StoreError
from barnabas.errors import KafkaError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.value import Value

if TYPE_CHECKING:
    from barnabas.coordination.controller.links import ControlResponse
    from barnabas.coordination.controller.state import Change, ControllerState

NO_IDS: Final[Mapping[str, Uuid]] = MappingProxyType({})

ControlRequest: TypeAlias = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class CreateTopics(Value):
    new: Sequence[NewTopic]
    validate_only: bool = False
    charge: Charge = free_of_charge


class AdoptTopics(Value):
    """Makes topics of directories that the store does not know, as when data was brought from elsewhere."""

    broker_id: BrokerId
    found: Mapping[TopicPartition, FoundPartition]


class DeleteTopics(Value):
    """A topic that has an id in `ids` is deleted only if that is its id when the request has its turn."""

    names: Collection[str]
    ids: Mapping[str, Uuid] = NO_IDS
    charge: Charge = free_of_charge


class CreatePartitions(Value):
    new: Sequence[NewPartitions]
    validate_only: bool = False
    charge: Charge = free_of_charge


class ElectLeaders(Value):
    partitions: Collection[TopicPartition]
    election: ElectionType


class AlterReassignments(Value):
    """None stops a reassignment that is under way."""

    targets: Mapping[TopicPartition, Sequence[int] | None]
    allow_replication_factor_change: bool = True


class TakeOver(Value):
    """The first request to a machine. Logs of brokers in `unclean` may have lost their ends."""

    snapshot: Snapshot
    unclean: Collection[BrokerId] = ()


MakeChange: TypeAlias = Callable[["ControllerState"], "Change[Any]"]
Request: TypeAlias = (
    TakeOver
    | CreateTopics
    | AdoptTopics
    | DeleteTopics
    | CreatePartitions
    | ElectLeaders
    | AlterReassignments
    | MakeChange
)


class Asked(Value):
    """A request. Its reply has the same ticket."""

    ticket: int
    request: Request


class News(Value):
    """Something has happened that nobody waits for."""

    change: MakeChange


class Replied(Value):
    """The answer of a broker; None if the request was dropped."""

    broker_id: BrokerId
    request: ControlRequest
    response: ControlResponse | None


class BrokersChanged(Value):
    """Brokers that are registered now. One with another epoch than before has restarted."""

    brokers: Mapping[BrokerId, BrokerImage]


class TopicsListed(Value):
    """Topics that the store has now. Brokers create some without asking the controller."""

    names: Collection[str]


class Stored(Value):
    pass


class StoreRefused(Value):
    error: StoreError


class TopicsRead(Value):
    topics: Mapping[str, StoredTopic]
    # Topics whose node cannot be read.
    unreadable: Mapping[str, MalformedNode] = MappingProxyType({})


class TreeRead(Value):
    """Nodes that exist, children before their parents."""

    paths: Sequence[str]


class StoredAll(Value):
    """What became of each transaction."""

    errors: Sequence[StoreError | None]


class NodesRead(Value):
    """None for a node that does not exist."""

    nodes: Sequence[tuple[bytes, Stat] | None]


class Closing(Value):
    """The broker stops: requests that wait are refused."""


Result: TypeAlias = Stored | StoredAll | StoreRefused | TopicsRead | NodesRead | TreeRead
Event: TypeAlias = Asked | News | Replied | BrokersChanged | TopicsListed | Closing | Result


class Write(Value):
    """One transaction. The first operation checks the controller's epoch."""

    operations: Sequence[Operation]


class WriteAll(Value):
    """Transactions that do not depend on each other, each with the check of the epoch as its first operation."""

    transactions: Sequence[Sequence[Operation]]


class ReadNodes(Value):
    paths: Sequence[str]


class ReadTopics(Value):
    names: Sequence[str]


class ReadTree(Value):
    """Asks which nodes exist at and below these."""

    roots: Sequence[str]


class Send(Value):
    """Requests to one broker arrive in the order in which they were sent."""

    broker_id: BrokerId
    request: ControlRequest


class Connect(Value):
    """The brokers that are alive now: each has a channel, and no other has one."""

    brokers: Mapping[BrokerId, BrokerImage]


class StartTimer(Value):
    """Gives the machine a change after a time."""

    delay_s: float
    change: MakeChange


class Reply(Value):
    ticket: int
    # The result of the request, or the error of the whole request.
    outcome: Any | KafkaError


class Resign(Value):
    """This broker is no longer the controller."""

    reason: KafkaError


Effect: TypeAlias = (
    Write | WriteAll | ReadTopics | ReadNodes | ReadTree | Send | Connect | StartTimer | Reply | Resign
)
WITH_RESULT: Final = (Write, WriteAll, ReadTopics, ReadNodes, ReadTree)
