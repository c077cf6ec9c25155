"""The controller's machine: events in, effects out, without a store, a loop or a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller import state as state_module
from barnabas.coordination.controller.events import (
    AdoptTopics,
    Asked,
    BrokersChanged,
    Closing,
    Connect,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Effect,
    ElectLeaders,
    Event,
    ReadNodes,
    ReadTopics,
    ReadTree,
    Replied,
    Reply,
    Request,
    Resign,
    Send,
    StartTimer,
    Stored,
    StoredAll,
    StoreRefused,
    TakeOver,
    TopicsListed,
    TopicsRead,
    TreeRead,
    Write,
    WriteAll,
)
from barnabas.coordination.controller.machine import ControllerMachine
from barnabas.coordination.controller.snapshot import Snapshot, StoredState, StoredTopic
from barnabas.coordination.controller.state import Claim, ControllerState, Deletion
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage
from barnabas.coordination.metadata.tree import PartitionState
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.coordination.planning.topic_creation import NewPartitions, NewTopic
from barnabas.coordination.store.contract import (
    BadVersion,
    Check,
    MultiFailed,
    NodeExists,
    Operation,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from barnabas.errors import (
    KafkaStorageError,
)
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from tests.coordination.controllers import stopped

EPOCH, EPOCH_VERSION = 7, 17
CHECK = Check("/controller_epoch", EPOCH_VERSION)
A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC_ID = bytes(range(16))


def broker(broker_id: BrokerId, epoch: int = 100) -> BrokerImage:
    return BrokerImage(id=broker_id, epoch=epoch + broker_id)


def brokers(*broker_ids: BrokerId) -> dict[BrokerId, BrokerImage]:
    return {each: broker(each) for each in broker_ids}


def stored_topic(
    *partitions: tuple[Sequence[int], int | None, Sequence[int], int], topic_id: bytes | None = TOPIC_ID
) -> StoredTopic:
    """Of each partition: replicas, leader or None for no state, in-sync replicas, leader epoch."""
    return StoredTopic(
        topic_id=topic_id,
        replicas=[tuple(map(BrokerId, replicas)) for replicas, *_ in partitions],
        has_partitions_node=True,
        partition_nodes=range(len(partitions)),
        states={
            index: StoredState(
                PartitionState(
                    leader=BrokerId(leader),
                    leader_epoch=LeaderEpoch(epoch),
                    isr=tuple(map(BrokerId, isr)),
                    controller_epoch=1,
                ),
                epoch + 20,
            )
            for index, (_, leader, isr, epoch) in enumerate(partitions)
            if leader is not None
        },
    )


def shown(effect: Effect) -> str:
    """An effect in a line, for comparison."""
    match effect:
        case Write(operations):
            assert operations[0] == CHECK
            return "write " + ", ".join(map(shown_operation, operations[1:]))
        case ReadTopics(names):
            return f"read topics {list(names)}"
        case ReadTree(roots):
            return f"read tree {list(roots)}"
        case Send(broker_id, request):
            return f"send {broker_id} {shown_request(request)}"
        case WriteAll(transactions):
            assert all(operations[0] == CHECK for operations in transactions)
            return "states " + "; ".join(
                ", ".join(map(shown_operation, operations[1:])) for operations in transactions
            )
        case ReadNodes(paths):
            return f"read {list(paths)}"
        case Reply(ticket, outcome):
            return f"reply {ticket} {shown_outcome(outcome)}"
        case Resign():
            return "resign"
    raise AssertionError(effect)


def shown_operation(operation: Operation) -> str:
    name = type(operation).__name__.lower().removesuffix("data")
    version = getattr(operation, "version", -1)
    return f"{name} {operation.path}" + ("" if version < 0 else f"@{version}")


def shown_request(request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> str:
    assert request.controller_epoch == EPOCH
    if isinstance(request, LeaderAndIsrRequest):
        roles = [
            f"{topic.topic_name}-{each.partition_index} leader {each.leader} epoch {each.leader_epoch} isr {each.isr}"
            + (" new" if each.is_new else "")
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        return f"roles of epoch {request.broker_epoch}: {'; '.join(roles)}"
    if isinstance(request, StopReplicaRequest):
        stops = [
            f"{'delete' if each.delete_partition else 'stop'} {topic.topic_name}-{each.partition_index}"
            f" epoch {each.leader_epoch}"
            for topic in request.topic_states
            for each in topic.partition_states
        ]
        return ", ".join(stops)
    leaders = [
        f"{topic.topic_name}-{each.partition_index}:{each.leader}"
        for topic in request.topic_states
        for each in topic.partition_states
    ]
    return f"metadata brokers {[each.id for each in request.live_brokers]} {' '.join(leaders)}".rstrip()


def shown_outcome(outcome: Any) -> str:
    if isinstance(outcome, list):
        return " ".join(map(shown_outcome, outcome))
    if isinstance(outcome, Mapping):
        return " ".join(f"{key}:{shown_outcome(each)}" for key, each in outcome.items())
    if outcome is None:
        return "ok"
    return type(outcome).__name__


class Controlled:
    """A machine that has taken over; `feed` returns what comes out of it."""

    def __init__(self, live: Mapping[BrokerId, BrokerImage], **settings: str) -> None:
        properties = {name.replace("_", "."): text for name, text in settings.items()}
        image = MetadataImage(cluster_id="c", controller_id=A, controller_epoch=EPOCH)
        live_settings = LiveSettings(BrokerConfig({"broker.id": "1", **properties}))
        self.state = ControllerState(Claim(EPOCH, EPOCH_VERSION), live_settings, Random(1), image)
        self.machine = ControllerMachine(self.state)
        self.live = live
        self.sent: list[Send] = []
        self._ticket = 0

    def feed(self, event: Event) -> list[str]:
        effects = self.machine.handle(event)
        self.sent += [each for each in effects if isinstance(each, Send)]
        return [shown(each) for each in effects if not isinstance(each, (Connect, StartTimer))]

    def answer(self, broker_id: BrokerId, code: int | None = 0) -> list[str]:
        """The answer to the last request that stops replicas of the broker; None if it was dropped."""
        requests = [each.request for each in self.sent if each.broker_id == broker_id]
        request = next(each for each in reversed(requests) if isinstance(each, StopReplicaRequest))
        return self.feed(Replied(broker_id, request, None if code is None else stopped(request, code)))

    def ask(self, request: Request) -> list[str]:
        self._ticket += 1
        return self.feed(Asked(self._ticket, request))

    def take_over(
        self,
        *,
        unclean: Sequence[BrokerId] = (),
        marked: Sequence[str] = (),
        configured: Sequence[str] = (),
        **topics: StoredTopic,
    ) -> list[str]:
        return self.ask(TakeOver(Snapshot(self.live, topics, marked, configured), unclean))

    def refuse(self, error: StoreError, index: int | None = None) -> list[str]:
        return self.feed(StoreRefused(error if index is None else MultiFailed(index, error)))


def controlled(*broker_ids: BrokerId, **topics: StoredTopic) -> Controlled:
    machine = Controlled(brokers(*broker_ids))
    effects = machine.ask(TakeOver(Snapshot(machine.live, topics, (), ())))
    assert effects[-1] == "reply 1 ok", effects
    return machine


def test_taking_over_a_cluster_that_is_whole_only_tells_the_brokers() -> None:
    machine = Controlled(brokers(A, B))
    effects = machine.take_over(t=stored_topic(([1, 2], 1, [1, 2], 3), ([2], 2, [2], 0)))
    assert effects == [
        # Leaders have to be known as alive before anybody can follow them.
        "send 1 metadata brokers [1, 2]",
        "send 2 metadata brokers [1, 2]",
        "send 1 roles of epoch 101: t-0 leader 1 epoch 3 isr [1, 2]",
        "send 1 metadata brokers [1, 2] t-0:1 t-1:2",
        "send 2 roles of epoch 102: t-0 leader 1 epoch 3 isr [1, 2]; t-1 leader 2 epoch 0 isr [2]",
        "send 2 metadata brokers [1, 2] t-0:1 t-1:2",
        "reply 1 ok",
    ]


def test_taking_over_makes_a_half_written_topic_whole() -> None:
    machine = Controlled(brokers(A))
    half = StoredTopic(None, [(A,), (A,)], False, set(), {})
    (write,) = machine.take_over(half=half)
    assert write == (
        "write set /brokers/topics/half, create /brokers/topics/half/partitions, "
        "create /brokers/topics/half/partitions/0, create /brokers/topics/half/partitions/0/state, "
        "create /brokers/topics/half/partitions/1, create /brokers/topics/half/partitions/1/state"
    )
    assert machine.feed(Stored())[-2:] == ["send 1 metadata brokers [1] half-0:1 half-1:1", "reply 1 ok"]


def test_taking_over_replaces_leaders_that_are_gone() -> None:
    machine = Controlled(brokers(A))
    topic = stored_topic(([3, 1], 3, [3, 1], 4), ([3], 3, [3], 4), ([3], -1, [3], 5))
    # The partition that nobody leads stays as it is; each write has the version that was read.
    assert machine.take_over(t=topic) == [
        "send 1 metadata brokers [1]",
        "states set /brokers/topics/t/partitions/0/state@24, set /brokers/topics/t/partitions/1/state@24",
    ]
    assert machine.feed(StoredAll([None]))[:2] == [
        "send 1 roles of epoch 101: t-0 leader 1 epoch 5 isr [1]",
        "send 1 metadata brokers [1] t-0:1 t-1:-1 t-2:-1",
    ]
    assert [each.leader_epoch for each in machine.state.image.topics["t"].partitions] == [5, 5, 5]


def test_taking_over_after_a_crash_raises_epochs_of_the_broker_that_crashed() -> None:
    machine = Controlled(brokers(A, B))
    effects = machine.take_over(t=stored_topic(([1], 1, [1], 0), ([2], 2, [2], 0)), unclean=[A])
    assert effects[-1] == "states set /brokers/topics/t/partitions/0/state@20"
    effects = machine.feed(StoredAll([None]))
    assert "send 1 roles of epoch 101: t-0 leader 1 epoch 1 isr [1]" in effects


def test_taking_over_goes_on_with_deletions_and_drops_old_marks() -> None:
    machine = Controlled(brokers(A))
    gone = stored_topic(([1], 1, [1], 0))
    (write,) = machine.take_over(gone=gone, marked=["gone", "long.gone"], configured=["gone"])
    assert write == "write delete /admin/delete_topics/long.gone"
    effects = machine.feed(Stored())
    assert effects == [
        "send 1 metadata brokers [1]",
        "send 1 metadata brokers [1] gone-0:-2",
        "send 1 stop gone-0 epoch -2",
        "send 1 delete gone-0 epoch -2",
    ]
    assert machine.state.image.topics == {}
    assert machine.answer(A) == [
        "read tree ['/brokers/topics/gone', '/config/topics/gone', '/admin/delete_topics/gone']"
    ]
    assert machine.feed(TreeRead(["/a", "/b"])) == ["write delete /a, delete /b"]
    assert machine.feed(Stored()) == ["reply 1 ok"]
    assert (machine.state.deleting, machine.state.configured) == ({}, set())


def test_taking_over_survives_logs_that_cannot_be_deleted() -> None:
    machine = Controlled(brokers(A))
    machine.take_over(gone=stored_topic(([1], 1, [1], 0)), marked=["gone"])
    assert machine.answer(A, KafkaStorageError.code) == ["reply 1 ok"]
    assert list(machine.state.deleting) == ["gone"]
    effects = machine.ask(CreateTopics([NewTopic("gone")]))
    assert effects == ["reply 2 TopicAlreadyExists"]


def test_taking_over_fails_if_it_cannot_write() -> None:
    machine = Controlled(brokers(A))
    machine.take_over(t=stored_topic(([1], None, [], 0)))
    assert machine.refuse(StoreUnavailable("no")) == ["reply 1 KafkaStorageError"]


CREATE_NEW = (
    "write create /config/topics/new, create /brokers/topics/new, create /brokers/topics/new/partitions, "
    "create /brokers/topics/new/partitions/0, create /brokers/topics/new/partitions/0/state"
)


def test_a_topic_is_stored_then_brokers_are_told_then_the_requester() -> None:
    machine = controlled(A, B)
    assert machine.ask(CreateTopics([NewTopic("new", assignments=[(0, [1])])])) == [CREATE_NEW]
    assert machine.state.image.topics == {}
    assert machine.feed(Stored()) == [
        "send 1 roles of epoch 101: new-0 leader 1 epoch 0 isr [1] new",
        "send 1 metadata brokers [1, 2] new-0:1",
        # A broker without a replica gets no role.
        "send 2 metadata brokers [1, 2] new-0:1",
        "reply 2 PlannedTopic",
    ]
    assert "new" in machine.state.configured


def test_settings_that_a_deleted_topic_has_left_are_replaced() -> None:
    machine = Controlled(brokers(A))
    machine.take_over(configured=["new"])
    assert machine.ask(CreateTopics([NewTopic("new")])) == [
        CREATE_NEW.replace("create /config/topics/new", "set /config/topics/new")
    ]


def test_what_is_refused_or_only_checked_has_no_effect() -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    assert machine.ask(CreateTopics([NewTopic("t"), NewTopic("x")], validate_only=True)) == [
        "reply 2 TopicAlreadyExists PlannedTopic"
    ]
    assert machine.ask(CreateTopics([NewTopic("t")])) == ["reply 3 TopicAlreadyExists"]
    assert machine.ask(CreatePartitions([NewPartitions("t", 2)], validate_only=True)) == [
        "reply 4 TopicImage"
    ]
    assert machine.ask(DeleteTopics(["x"])) == ["reply 5 x:UnknownTopicOrPartition"]


def test_a_larger_change_is_stored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "OPERATIONS_AT_ONCE", 3)
    machine = controlled(A)
    machine.ask(CreateTopics([NewTopic("new", 2)]))
    parts = 1
    while (effects := machine.feed(Stored()))[0].startswith("write"):
        assert len(effects) == 1
        parts += 1
    assert (parts, effects[-1]) == (3, "reply 2 PlannedTopic")


def test_a_change_waits_until_the_one_before_has_ended() -> None:
    machine = controlled(A)
    assert machine.ask(CreateTopics([NewTopic("new")])) == [CREATE_NEW]
    assert machine.ask(CreateTopics([NewTopic("new")])) == []
    assert machine.feed(TopicsListed(["new"])) == []
    # The second request finds the topic of the first, and so does the news from the store.
    assert machine.feed(Stored())[-2:] == ["reply 2 PlannedTopic", "reply 3 TopicAlreadyExists"]


@pytest.mark.parametrize(
    ("error", "index", "outcome"),
    [
        (StoreUnavailable("no"), None, "KafkaStorageError"),
        (NodeExists("/x"), 1, "UnknownServerError"),
    ],
)
def test_a_write_that_is_refused_fails_its_request_alone(
    error: StoreError, index: int | None, outcome: str
) -> None:
    machine = controlled(A)
    machine.ask(CreateTopics([NewTopic("new")]))
    machine.ask(CreateTopics([NewTopic("new")]))
    assert machine.refuse(error, index) == [f"reply 2 {outcome}", CREATE_NEW]
    assert machine.feed(Stored())[-1] == "reply 3 PlannedTopic"


@pytest.mark.parametrize(
    ("error", "index"), [(BadVersion("/controller_epoch"), 0), (SessionExpired("no"), None)]
)
def test_a_controller_that_has_lost_its_epoch_refuses_everything(
    error: StoreError, index: int | None
) -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    machine.ask(CreateTopics([NewTopic("new")]))
    machine.ask(DeleteTopics(["t"]))
    machine.feed(BrokersChanged({}))
    assert machine.refuse(error, index) == ["reply 2 NotController", "resign", "reply 3 NotController"]
    assert machine.ask(CreateTopics([NewTopic("new")])) == ["reply 4 NotController"]


def test_a_machine_that_closes_ends_its_change_and_refuses_later_ones() -> None:
    machine = controlled(A)
    machine.ask(CreateTopics([NewTopic("new")]))
    assert machine.feed(Closing()) == []
    machine.ask(CreateTopics([NewTopic("newer")]))
    assert machine.feed(Stored())[-3:] == ["reply 2 PlannedTopic", "resign", "reply 3 NotController"]


def test_a_charge_that_fails_unexpectedly_fails_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    def fail(count: int) -> None:
        raise RuntimeError("no")

    machine = controlled(A)
    assert machine.ask(CreateTopics([NewTopic("new")], charge=fail)) == ["reply 2 UnknownServerError"]
    assert machine.ask(CreateTopics([NewTopic("new")])) == [CREATE_NEW]


def test_new_partitions_get_roles_and_the_old_ones_none() -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    partition = "/brokers/topics/t/partitions/1"
    assert machine.ask(CreatePartitions([NewPartitions("t", 2), NewPartitions("x", 2)])) == [
        f"write set /brokers/topics/t, create {partition}, create {partition}/state"
    ]
    assert machine.feed(Stored()) == [
        "send 1 roles of epoch 101: t-1 leader 1 epoch 0 isr [1] new",
        "send 1 metadata brokers [1] t-1:1",
        "reply 2 TopicImage UnknownTopicOrPartition",
    ]


def test_a_topic_is_deleted_from_metadata_then_disks_then_the_store() -> None:
    machine = controlled(A, B, t=stored_topic(([1, 2], 1, [1, 2], 0), ([2], 2, [2], 0)))
    assert machine.ask(DeleteTopics(["t", "x"])) == ["write create /admin/delete_topics/t"]
    assert machine.feed(Stored()) == [
        "send 1 metadata brokers [1, 2] t-0:-2 t-1:-2",
        "send 2 metadata brokers [1, 2] t-0:-2 t-1:-2",
        "send 1 stop t-0 epoch -2",
        "send 2 stop t-0 epoch -2, stop t-1 epoch -2",
        "send 1 delete t-0 epoch -2",
        "send 2 delete t-0 epoch -2, delete t-1 epoch -2",
    ]
    assert (list(machine.state.image.topics), list(machine.state.deleting)) == ([], ["t"])
    # The reply waits for the broker of the controller alone.
    assert machine.answer(A) == ["reply 2 t:ok x:UnknownTopicOrPartition"]
    assert machine.answer(B) == [
        "read tree ['/brokers/topics/t', '/config/topics/t', '/admin/delete_topics/t']"
    ]
    assert machine.feed(TreeRead(["/p", "/q"])) == ["write delete /p, delete /q"]
    assert machine.feed(Stored()) == []
    assert machine.state.deleting == {}


def test_a_topic_stays_marked_if_a_broker_cannot_delete_it() -> None:
    topics = {name: stored_topic(([1, 2], 1, [1, 2], 0), topic_id=name.encode() * 16) for name in "abc"}
    machine = controlled(A, B, **topics)
    machine.ask(DeleteTopics(["a"]))
    machine.feed(Stored())
    machine.answer(B)
    assert machine.answer(A, KafkaStorageError.code) == ["reply 2 a:KafkaStorageError"]
    # A broker that is gone cannot confirm anything.
    machine.ask(DeleteTopics(["b"]))
    machine.feed(Stored())
    assert machine.answer(A) == ["reply 3 b:ok"]
    assert machine.answer(B, None) == []
    assert list(machine.state.deleting) == ["a", "b"]
    # When it comes back, both are asked for what is left.
    restarted = {A: broker(A), B: broker(B, epoch=200)}
    effects = machine.feed(BrokersChanged(restarted))
    effects += machine.feed(StoredAll([None]))
    assert [each for each in effects if "delete" in each] == [
        "send 1 delete a-0 epoch -2",
        "send 2 delete b-0 epoch -2",
    ]
    assert machine.answer(B) == [
        "read tree ['/brokers/topics/b', '/config/topics/b', '/admin/delete_topics/b']"
    ]


@pytest.mark.parametrize("step", ["read", "write"])
def test_a_deletion_whose_nodes_cannot_be_removed_is_left_to_the_next_start(step: str) -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    machine.ask(DeleteTopics(["t"]))
    machine.feed(Stored())
    machine.answer(A)
    if step == "write":
        machine.feed(TreeRead(["/t"]))
    assert machine.refuse(StoreUnavailable("no")) == ["reply 2 t:KafkaStorageError"]
    assert list(machine.state.deleting) == ["t"]


def test_a_topic_with_another_id_is_not_the_one_to_delete() -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    assert machine.ask(DeleteTopics(["t"], ids={"t": bytes(16)})) == ["reply 2 t:UnknownTopicId"]


def test_topics_that_brokers_create_get_their_partitions() -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    machine.state.deleting["going"] = Deletion(machine.state.image.topics["t"])
    assert machine.feed(TopicsListed(["t", "going"])) == []
    assert machine.feed(TopicsListed(["found", "t", "vanished"])) == ["read topics ['found', 'vanished']"]
    found = StoredTopic(bytes(16), [(A,)], False, set(), {})
    partitions = "/brokers/topics/found/partitions"
    assert machine.feed(TopicsRead({"found": found})) == [
        f"write create {partitions}, create {partitions}/0, create {partitions}/0/state"
    ]
    assert machine.feed(Stored()) == [
        "send 1 roles of epoch 101: found-0 leader 1 epoch 0 isr [1] new",
        "send 1 metadata brokers [1] found-0:1",
    ]


def test_found_topics_that_cannot_be_read_stop_nothing() -> None:
    machine = controlled(A)
    machine.feed(TopicsListed(["found"]))
    assert machine.refuse(StoreUnavailable("no")) == []
    assert machine.ask(CreateTopics([NewTopic("new")])) == [CREATE_NEW]


def test_adopted_topics_have_logs_already() -> None:
    machine = controlled(A)
    at = TopicPartition("found", 0)
    (write,) = machine.ask(AdoptTopics(A, {at: FoundPartition(TOPIC_ID, LeaderEpoch(4))}))
    assert write.startswith("write create /config/topics/found, create /brokers/topics/found, ")
    assert machine.feed(Stored()) == [
        "send 1 roles of epoch 101: found-0 leader 1 epoch 5 isr [1]",
        "send 1 metadata brokers [1] found-0:1",
        "reply 2 TopicImage",
    ]


def test_an_election_is_stored_with_the_version_that_was_known() -> None:
    machine = controlled(A, B, t=stored_topic(([1, 2], 2, [1, 2], 3), ([1, 2], 1, [1, 2], 3)))
    first, second, none = (TopicPartition("t", index) for index in (0, 1, 2))
    assert machine.ask(ElectLeaders([first, second, none], ElectionType.PREFERRED)) == [
        "states set /brokers/topics/t/partitions/0/state@23"
    ]
    effects = machine.feed(StoredAll([None]))
    assert effects[:2] == [
        "send 1 roles of epoch 101: t-0 leader 1 epoch 4 isr [1, 2]",
        "send 1 metadata brokers [1, 2] t-0:1",
    ]
    reply = effects[-1]
    assert [error in reply for error in ("ElectionNotNeeded", "UnknownTopicOrPartition")] == [True, True]
    assert machine.ask(ElectLeaders([first], ElectionType.PREFERRED))[-1].endswith("ElectionNotNeeded")


def test_a_broker_that_goes_loses_its_leaderships() -> None:
    machine = controlled(A, B, t=stored_topic(([2, 1], 2, [2, 1], 0), ([2], 2, [2], 0), ([1], 1, [1], 0)))
    assert machine.feed(BrokersChanged(brokers(A))) == ["states set /brokers/topics/t/partitions/0/state@20"]
    roles = "send 1 roles of epoch 101: t-0 leader 1 epoch 1 isr [1]"
    assert machine.feed(StoredAll([None])) == [
        roles,
        "send 1 metadata brokers [1] t-0:1",
        "states set /brokers/topics/t/partitions/1/state@20",
    ]
    assert machine.feed(StoredAll([None])) == [roles, "send 1 metadata brokers [1] t-0:1 t-1:-1"]


def test_a_broker_that_comes_is_told_of_everything_and_the_others_of_it() -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0), ([2], -1, [2], 5)))
    assert machine.feed(BrokersChanged(brokers(A, B))) == [
        "send 1 metadata brokers [1, 2]",
        # What it has missed, before its roles.
        "send 2 metadata brokers [1, 2] t-0:1 t-1:-1",
        "send 2 roles of epoch 102: t-1 leader -1 epoch 5 isr [2]",
        "send 1 metadata brokers [1, 2] t-1:-1",
        "send 2 metadata brokers [1, 2] t-1:-1",
        "states set /brokers/topics/t/partitions/1/state@25",
    ]
    assert machine.feed(StoredAll([None])) == [
        "send 1 metadata brokers [1, 2] t-1:2",
        "send 2 roles of epoch 102: t-1 leader 2 epoch 6 isr [2]",
        "send 2 metadata brokers [1, 2] t-1:2",
    ]


def test_news_that_is_none_has_no_effect() -> None:
    machine = controlled(A, t=stored_topic(([1], 1, [1], 0)))
    assert machine.feed(BrokersChanged(brokers(A))) == []
    assert machine.feed(TopicsListed(["t"])) == []


def test_a_broker_that_was_restarted_has_gone_and_come() -> None:
    machine = controlled(A, B, t=stored_topic(([1, 2], 1, [1, 2], 0)))
    restarted = {A: broker(A), B: broker(B, epoch=200)}
    assert machine.feed(BrokersChanged(restarted)) == ["states set /brokers/topics/t/partitions/0/state@20"]
    assert machine.feed(StoredAll([None])) == [
        "send 1 roles of epoch 101: t-0 leader 1 epoch 1 isr [1]",
        "send 1 metadata brokers [1] t-0:1",
        "send 1 metadata brokers [1, 2]",
        "send 2 metadata brokers [1, 2] t-0:1",
        "send 2 roles of epoch 202: t-0 leader 1 epoch 1 isr [1]",
        "send 1 metadata brokers [1, 2] t-0:1",
        "send 2 metadata brokers [1, 2] t-0:1",
    ]
