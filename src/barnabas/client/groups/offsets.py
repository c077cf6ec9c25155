"""The offsets of a group: committed to and fetched from its coordinator, asked again while that may help."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from barnabas.client.connections.brokers import Brokers, retrying
from barnabas.client.connections.coordinator import Coordinator
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.errors import (
    NONE,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnknownTopicOrPartition,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_commit_response import OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_fetch_response import OffsetFetchResponse

T = TypeVar("T")

OFFSET_FETCH: Final = api_for_name("OffsetFetch")
FIRST_VERSION_WITH_GROUPS: Final = 8
FIRST_VERSION_WITH_STABLE: Final = 7
# The last versions that name topics; later ones take ids.
LAST_VERSION_WITH_NAMES: Final = 9
NO_OFFSET: Final = -1
OF_ANOTHER_GENERATION: Final = frozenset({IllegalGeneration.code, RebalanceInProgress.code})

_REMEDIES: Final[dict[int, str]] = {
    RebalanceInProgress.code: "the group is rebalancing: continue to poll, and commit again after the rebalance",
    UnknownMemberId.code: "the group does not have this member any more; its partitions are read by others. Call poll()"
    " within max.poll.interval.ms, or handle fewer records at a time (max.poll.records)",
    IllegalGeneration.code: "the group has rebalanced without this member; its partitions may be read by others. Call"
    " poll() within max.poll.interval.ms, or handle fewer records at a time (max.poll.records)",
    FencedInstanceId.code: "another consumer uses the same group.instance.id: each needs its own",
    TopicAuthorizationFailed.code: "this client may not read the topic",
}


class CommitOvertaken(RebalanceInProgress):
    """A commit of an ended generation, by a member that still has its partitions."""

    retriable = True


class TopicGone(UnknownTopicOrPartition):
    """A commit for a topic that has been deleted: it would wait for its time-out, and hold up a rebalance."""

    retriable = False


class GroupOffsets:
    def __init__(
        self,
        settings: ConsumerSettings,
        brokers: Brokers,
        coordinator: Coordinator,
        identity: Callable[[], ConsumerGroupMetadata],
        has_overtaken: Callable[[int], bool],
        is_gone: Callable[[TopicPartition], bool],
    ) -> None:
        """`identity` returns the current identity of the committing member; `has_overtaken` is the member's.

        `is_gone` says whether the metadata knows no such partition either.
        """
        assert settings.group_id is not None
        self._settings = settings
        self._group_id = settings.group_id
        self._brokers = brokers
        self._coordinator = coordinator
        self._identity = identity
        self._has_overtaken = has_overtaken
        self._is_gone = is_gone
        self._is_consumer_protocol = settings.group_protocol == "consumer"

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float) -> None:
        """Commits the offsets; raises an error that names the remedy."""
        if offsets:
            await self._retrying(lambda: self._commit_once(offsets), timeout_ms, "committing offsets")

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets; omits partitions without one."""
        wanted = list(partitions)
        if not wanted:
            return {}
        return await self._retrying(
            lambda: self._committed_once(wanted), timeout_ms, "fetching committed offsets"
        )

    async def _retrying(self, attempt: Callable[[], Awaitable[T]], timeout_ms: float, what: str) -> T:
        async def attempt_once() -> T:
            try:
                return await attempt()
            except KafkaError as error:
                self._coordinator.forget_if_moved(error)
                raise

        return await retrying(
            attempt_once,
            settings=self._settings,
            timeout_ms=timeout_ms,
            what=f"{what} of group {self._group_id}",
            # A member's epoch has increased in the meantime, and the next attempt uses the new one.
            is_retriable=lambda error: (
                error.retriable or (self._is_consumer_protocol and isinstance(error, StaleMemberEpoch))
            ),
        )

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        node = await self._coordinator.find()
        identity = self._identity()
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, offset in offsets.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        answer: OffsetCommitResponse = await self._brokers.request(
            node, request, max_version=LAST_VERSION_WITH_NAMES
        )
        gone: list[str] = []
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code != NONE:
                    where = TopicPartition(topic.name, each.partition_index)
                    what = f"the offset of {where} in group {self._group_id}"
                    if each.error_code == UnknownTopicOrPartition.code and self._is_gone(where):
                        gone.append(str(where))
                        continue
                    if each.error_code in OF_ANOTHER_GENERATION and self._has_overtaken(
                        identity.generation_id
                    ):
                        raise CommitOvertaken(what)
                    raise _error(each.error_code, what)
        if gone:
            raise TopicGone(
                f"group {self._group_id} has no offset for what does not exist: {', '.join(gone)}"
            )

    async def _committed_once(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        node = await self._coordinator.find()
        link = await self._brokers.link(node)
        version = link.version_of(OFFSET_FETCH, LAST_VERSION_WITH_NAMES)
        numbers: dict[str, list[int]] = {}
        for partition in partitions:
            numbers.setdefault(partition.topic, []).append(partition.partition)
        # An offset in a transaction under way may still be taken back.
        require_stable = (
            self._settings.isolation_level == "read_committed" and version >= FIRST_VERSION_WITH_STABLE
        )
        if version >= FIRST_VERSION_WITH_GROUPS:
            identity = self._identity()
            is_member = self._is_consumer_protocol and identity.generation_id > 0
            group = OffsetFetchRequestGroup(
                group_id=self._group_id,
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=each)
                    for name, each in numbers.items()
                ],
            )
            if is_member and version >= LAST_VERSION_WITH_NAMES:
                group.member_id = identity.member_id
                group.member_epoch = identity.generation_id
            request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        else:
            request = OffsetFetchRequest(
                group_id=self._group_id,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=each)
                    for name, each in numbers.items()
                ],
                require_stable=require_stable,
            )
        answer: OffsetFetchResponse = await self._brokers.request(node, request, max_version=version)
        code = answer.error_code
        found = [(topic.name, each) for topic in answer.topics for each in topic.partitions]
        for told in answer.groups:
            code = code or told.error_code
            found += [(topic.name, each) for topic in told.topics for each in topic.partitions]  # type: ignore[misc]
        if code != NONE:
            raise _error(code, f"the offsets of group {self._group_id}")
        committed: dict[TopicPartition, OffsetAndMetadata] = {}
        for name, each in found:
            partition = TopicPartition(name, each.partition_index)
            if each.error_code != NONE:
                raise _error(each.error_code, f"the offset of {partition} in group {self._group_id}")
            if each.committed_offset != NO_OFFSET:
                committed[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
        return committed


def _error(code: int, what: str) -> KafkaError:
    remedy = _REMEDIES.get(code)
    return error_for_code(code, what if remedy is None else f"{what}: {remedy}")
