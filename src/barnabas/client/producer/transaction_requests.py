"""The requests of a transaction, built from what callers pass, and the errors in their responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.client.arguments import as_mapped, as_offset, as_tp
from barnabas.client.failures import TransactionMisuse
from barnabas.client.producer.records import GroupMetadata, OffsetToCommit
from barnabas.errors import NONE, OperationNotAttempted
from barnabas.model import TopicPartition
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse


def offsets_of(given: object) -> dict[TopicPartition, OffsetToCommit]:
    """The offsets of a transaction as people give them."""
    return as_mapped(given, "offsets", "{('orders', 0): 5}", as_tp, _offset)


def _offset(given: object, argument: str) -> OffsetToCommit:
    if isinstance(given, int):
        return OffsetToCommit(as_offset(given, argument))
    offset = getattr(given, "offset", None)
    if not isinstance(offset, int):
        raise TransactionMisuse(f"{argument} takes a number or an offset with metadata, and not {given!r}")
    as_offset(offset, argument)
    epoch = getattr(given, "leader_epoch", None)
    return OffsetToCommit(offset, getattr(given, "metadata", None) or "", -1 if epoch is None else epoch)


def group_of(group: Any) -> GroupMetadata:
    if isinstance(group, str):
        return GroupMetadata(group)
    if not isinstance(getattr(group, "group_id", None), str):
        raise TransactionMisuse(
            f"a group is named by its id or by consumer.group_metadata(), and not by {group!r}"
        )
    return GroupMetadata(
        group.group_id,
        getattr(group, "generation_id", -1),
        getattr(group, "member_id", ""),
        getattr(group, "group_instance_id", None),
    )


def add_partitions_request(
    transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()
        ],
    )


def offsets_request(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetToCommit],
) -> TxnOffsetCommitRequest:
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, given in offsets.items():
        by_topic.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=given.offset,
                committed_leader_epoch=given.leader_epoch,
                committed_metadata=given.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )


def first_error(answer: Any) -> int:
    """The error code of an answer, or the first that counts among those of its partitions."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        codes = [
            partition.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]
    elif isinstance(answer, TxnOffsetCommitResponse):
        codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    else:
        codes = [answer.error_code]
    wrong = [code for code in codes if code != NONE]
    # Where one partition has an error the others are not attempted: that is not the reason.
    return next((code for code in wrong if code != OperationNotAttempted.code), wrong[0] if wrong else NONE)
