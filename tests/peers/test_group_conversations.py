"""The same requests to Apache Kafka's coordinator of groups and to ours, one by one, get the same answers.

Conversations are random, from seeds: members of the new protocol and one of the classic one, dynamic and static, with
right and wrong epochs, owning what they should and what they should not, that commit, leave and come back. The assignor
is `range`, which leaves no choice. Ids of topics, and of members that a broker names, are compared by what they stand
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from barnabas.errors import error_name
from barnabas.groups.consumer_protocol import build_assignment, parse_assignment
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.protocol.messages.delete_groups_request import DeleteGroupsRequest
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from bench.kafka import ApacheKafka
from tests.broker.group_requests import describe, find
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.peers.kafka_peer import START_TIMEOUT_S, V4, PeerUnavailable, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPICS: Final = {"topic": 5, "other": 2}
CONVERSATIONS: Final = 30
REQUESTS: Final = 60
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.append.linger.ms": "0",
}
CLASSIC: Final = "k"

Owned = dict[str, list[int]]


class Side:
    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.topic_ids: dict[str, bytes] = {}
        # What a broker has named itself, by the conversation's name for it.
        self.classic_id = ""

    def name_of(self, topic_id: bytes) -> str:
        return next(name for name, known in self.topic_ids.items() if known == topic_id)

    def member_name(self, member_id: str) -> str:
        return member_id if len(member_id) == 1 else "classic" if member_id else ""

    def owned(self, topics: Any) -> Owned:
        return {self.name_of(each.topic_id): sorted(each.partitions) for each in topics if each.partitions}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    try:
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    folder: Path = tmp_path_factory.mktemp("conversations")
    with (
        ApacheKafka(folder / "kafka", SETTINGS) as kafka,
        BrokerProcess(folder / "ours", SETTINGS) as ours,
        kafka.client() as kafka_client,
        ours.client() as our_client,
    ):
        both = [Side(kafka_client), Side(our_client)]
        for side in both:
            for name, count in TOPICS.items():
                create_topic(side.client, name, count)
            wait_for(side.client)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
            for topic in side.client.ask("Metadata", 12, asked).topics:
                side.topic_ids[topic.name] = topic.topic_id
        yield both


def wait_for(client: RawClient) -> None:
    wait_until(
        lambda: find(client, "any").error_code == 0 and describe(client, "any", version=5).error_code == 0,
        timeout_s=START_TIMEOUT_S,
        poll_s=0.1,
    )


class Conversation:
    """What members believe follows from the answers, which are the same on both sides."""

    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.rng = Random(seed)
        self.group_id = f"conversation-{seed}"
        self.sides = sides
        for side in sides:
            side.classic_id = ""
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Owned] = {}
        self.generation_id = -1
        self.classic_owned: Owned = {}
        self.told: list[Any] = []
        self.is_consumer = False

    def step(self) -> None:
        member = self.rng.choice("abc")
        instance_id = {"a": None, "b": None, "c": "j"}[member]
        what = self.rng.random()
        if what < 0.12:
            self.join(member, instance_id)
        elif what < 0.5:
            self.beat(member, instance_id)
        elif what < 0.56:
            self.leave(member, instance_id)
        elif what < 0.64:
            self.classic_join()
        elif what < 0.7:
            self.classic_heartbeat()
        elif what < 0.73:
            self.classic_leave()
        elif what < 0.83:
            self.commit(member)
        elif what < 0.88:
            self.fetch(member)
        elif what < 0.9:
            self.delete()
        was_consumer, self.is_consumer = self.is_consumer, self.describe()
        if was_consumer and not self.is_consumer and self.sides[0].classic_id:
            # A member that stays behind joins again before anybody else comes: until then Kafka takes for its own what
            # it was to own, and we what it owns.
            self.classic_join()

    def ask(self, what: str, answer_of: Any) -> Any:
        answers = [answer_of(side) for side in self.sides]
        self.told.append((what, answers[0]))
        if answers[0] != answers[1]:
            history = "\n".join(f"  {each}" for each in self.told[-12:])
            raise AssertionError(f"{what}:\n Kafka {answers[0]}\n we    {answers[1]}\nafter\n{history}")
        return answers[0]

    def join(self, member: str, instance_id: str | None) -> None:
        topics = self.rng.choice([["topic"], ["topic", "other"], ["other"], ["none"]])
        self._heartbeat(
            member,
            0,
            instance_id=instance_id,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=topics,
            subscribed_topic_regex=self.rng.choice([None, None, None, "nothing.*"]),
            server_assignor="range",
            owned={},
        )

    def beat(self, member: str, instance_id: str | None) -> None:
        epoch = self.epochs.get(member, 1) + self.rng.choice([0] * 12 + [-1, 1])
        owned = self.rng.choice(
            [None, self.owned.get(member, {}), self.owned.get(member, {}), {"topic": [0, 1]}]
        )
        fields: dict[str, Any] = {"instance_id": instance_id}
        if self.rng.random() < 0.1:
            fields["subscribed_topic_names"] = self.rng.choice([["topic"], ["topic", "other"]])
        self._heartbeat(member, max(epoch, 1), owned=owned, **fields)

    def leave(self, member: str, instance_id: str | None) -> None:
        epoch = self.rng.choice([-1, -2]) if instance_id else -1
        self._heartbeat(member, epoch, instance_id=instance_id, owned=None)

    def _heartbeat(self, member: str, epoch: int, *, owned: Owned | None, **fields: Any) -> None:
        def send(side: Side) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group_id, member_id=member, member_epoch=epoch, **fields
            )
            if owned is not None:
                request.topic_partitions = [
                    TopicPartitions(topic_id=side.topic_ids[name], partitions=partitions)
                    for name, partitions in owned.items()
                ]
            answer = side.client.ask("ConsumerGroupHeartbeat", 1, request)
            assignment = answer.assignment
            return (
                error_name(answer.error_code),
                answer.member_id,
                answer.member_epoch,
                answer.heartbeat_interval_ms,
                None if assignment is None else side.owned(assignment.topic_partitions),
            )

        error, _, epoch_after, _, assignment = self.ask(f"beat {member} {epoch} {owned} {fields}", send)
        if error == "NONE":
            self.epochs[member] = epoch_after
            if assignment is not None:
                self.owned[member] = assignment
        elif error in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"):
            self.owned.pop(member, None)

    def classic_join(self) -> None:
        message = ConsumerProtocolSubscription(
            topics=["topic"],
            user_data=None,
            owned_partitions=[
                TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in self.classic_owned.items()
            ],
        )
        is_known = self.rng.random() < 0.8

        def send(side: Side) -> Any:
            request = JoinGroupRequest(
                group_id=self.group_id,
                member_id=side.classic_id if is_known else "",
                group_instance_id=CLASSIC,
                session_timeout_ms=300_000,
                rebalance_timeout_ms=300_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01" + encode(message, 1))],
            )
            answer = side.client.ask("JoinGroup", 9, request)
            if answer.error_code == 0:
                side.classic_id = answer.member_id
            elif answer.error_code in (25, 82):
                side.classic_id = ""
            return (
                error_name(answer.error_code),
                answer.generation_id,
                answer.protocol_name,
                side.member_name(answer.leader),
                len(answer.members),
                answer.skip_assignment,
            )

        error, generation_id, _, _, members, skips = self.ask(f"join {CLASSIC}", send)
        if error == "NONE":
            self.generation_id = generation_id
            self.classic_sync(is_leader=members > 0 and not skips)
        else:
            self.classic_owned = {}

    def classic_sync(self, *, is_leader: bool) -> None:
        def send(side: Side) -> Any:
            request = SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=side.classic_id,
                group_instance_id=CLASSIC,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=side.classic_id,
                        assignment=build_assignment({"topic": list(range(TOPICS["topic"]))}, 1),
                    )
                ]
                if is_leader
                else [],
            )
            answer = side.client.ask("SyncGroup", 5, request)
            owned = parse_assignment(answer.assignment)
            return error_name(answer.error_code), {name: sorted(owned[name]) for name in owned if owned[name]}

        error, owned = self.ask(f"sync {CLASSIC}", send)
        if error == "NONE":
            self.classic_owned = owned

    def classic_heartbeat(self) -> None:
        generation_id = self.generation_id + self.rng.choice([0] * 9 + [1])

        def send(side: Side) -> str:
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=generation_id,
                member_id=side.classic_id or "unknown",
                group_instance_id=CLASSIC,
            )
            return error_name(side.client.ask("Heartbeat", 4, request).error_code)

        self.ask(f"heartbeat {CLASSIC} {generation_id}", send)

    def classic_leave(self) -> None:
        def send(side: Side) -> Any:
            request = LeaveGroupRequest(
                group_id=self.group_id, members=[MemberIdentity(member_id="", group_instance_id=CLASSIC)]
            )
            answer = side.client.ask("LeaveGroup", 5, request)
            side.classic_id = ""
            return error_name(answer.error_code), [error_name(each.error_code) for each in answer.members]

        self.ask(f"leave {CLASSIC}", send)
        self.classic_owned = {}

    def commit(self, member: str) -> None:
        epoch = self.epochs.get(member, 1) + self.rng.choice([0, 0, 0, -1, 1])
        partition = self.rng.randrange(TOPICS["topic"])
        version = self.rng.choice([8, 9, 9, 9])
        if self.rng.random() < 0.2:
            member, epoch = "", -1

        def send(side: Side) -> str:
            request = OffsetCommitRequest(
                group_id=self.group_id,
                member_id=member,
                generation_id_or_member_epoch=epoch,
                topics=[
                    OffsetCommitRequestTopic(
                        name="topic",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=7, committed_metadata=""
                            )
                        ],
                    )
                ],
            )
            [topic] = side.client.ask("OffsetCommit", version, request).topics
            return error_name(topic.partitions[0].error_code)

        self.ask(f"commit {member} {epoch} {partition} v{version}", send)

    def fetch(self, member: str) -> None:
        asked_id = self.rng.choice([None, member])
        epoch = -1 if asked_id is None else self.epochs.get(member, 1) + self.rng.choice([0, 0, 1])

        def send(side: Side) -> Any:
            group = OffsetFetchRequestGroup(
                group_id=self.group_id,
                member_id=asked_id,
                member_epoch=epoch,
                topics=[
                    OffsetFetchRequestTopics(name="topic", partition_indexes=list(range(TOPICS["topic"])))
                ],
            )
            [answer] = side.client.ask("OffsetFetch", 9, OffsetFetchRequest(groups=[group])).groups
            offsets = [each.committed_offset for topic in answer.topics for each in topic.partitions]
            return error_name(answer.error_code), offsets

        self.ask(f"fetch {asked_id} {epoch}", send)

    def delete(self) -> None:
        def send(side: Side) -> str:
            request = DeleteGroupsRequest(groups_names=[self.group_id])
            [result] = side.client.ask("DeleteGroups", 2, request).results
            return error_name(result.error_code)

        self.ask("delete", send)

    def describe(self) -> bool:
        """Whether it is a consumer group."""

        def send(side: Side) -> Any:
            request = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
            [group] = side.client.ask("ConsumerGroupDescribe", 1, request).groups
            classic = describe(side.client, self.group_id, version=6)
            listed = [
                (each.group_type, each.group_state, each.protocol_type)
                for each in side.client.ask("ListGroups", 5, ListGroupsRequest()).groups
                if each.group_id == self.group_id
            ]
            members = sorted(
                (
                    side.member_name(each.member_id),
                    each.instance_id,
                    each.member_epoch,
                    each.member_type,
                    sorted(each.subscribed_topic_names),
                    side.owned(each.assignment.topic_partitions),
                    side.owned(each.target_assignment.topic_partitions),
                )
                for each in group.members
            )
            return {
                "consumer": (
                    error_name(group.error_code),
                    group.error_message,
                    group.group_state,
                    group.group_epoch,
                    group.assignment_epoch,
                    group.assignor_name,
                ),
                "members": members,
                "classic": (error_name(classic.error_code), classic.group_state, len(classic.members)),
                "listed": listed,
            }

        return bool(self.ask("describe", send)["consumer"][0] == "NONE")


@pytest.mark.parametrize("seed", range(CONVERSATIONS))
def test_conversation(sides: list[Side], seed: int) -> None:
    conversation = Conversation(seed, sides)
    for _ in range(REQUESTS):
        conversation.step()
