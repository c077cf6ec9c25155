"""OffsetFetch before version 8 names one group, in separate fields; this module converts it to the batched form.

Before version 2 a response has no field for an error of the whole group, so each partition has it.
"""

from __future__ import annotations

from typing import Final

from barnabas.errors import NONE
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_FIRST_BATCHED: Final = 8
_FIRST_WITH_GROUP_ERROR: Final = 2


def requested_groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    if version >= _FIRST_BATCHED:
        return request.groups
    topics = request.topics
    return [
        OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in topics
            ],
        )
    ]


def group_error(request: OffsetFetchRequestGroup, code: int, version: int) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
    if version < _FIRST_WITH_GROUP_ERROR:
        response.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return response


def response_of_groups(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= _FIRST_BATCHED:
        return OffsetFetchResponse(groups=groups)
    [group] = groups
    return OffsetFetchResponse(
        error_code=group.error_code if version >= _FIRST_WITH_GROUP_ERROR else NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
