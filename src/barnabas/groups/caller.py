"""The sender of a request to a group coordinator, and how each request is refused."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

from barnabas.errors import KafkaError
from barnabas.primitives.decision import Requester, error_of_failed_append
from barnabas.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from barnabas.protocol.messages.delete_groups_response import DeleteGroupsResponse
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse
from barnabas.protocol.messages.offset_commit_response import OffsetCommitResponse
from barnabas.protocol.messages.offset_delete_response import OffsetDeleteResponse
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

_FIRST_JOIN_WITHOUT_PROTOCOL: Final = 7


class Caller(Requester):
    """The caller identifies a parked request, so each request has its own caller."""

    __slots__ = ("client_host", "client_id", "version", "visible_topics")

    def __init__(
        self,
        *,
        version: int,
        client_id: str = "",
        client_host: str = "",
        answer: Callable[[Any], None],
    ) -> None:
        super().__init__(answer)
        self.version: Final = version
        self.client_id: Final = client_id
        self.client_host: Final = client_host
        # The topics that a regular expression of the caller may match; None for all.
        self.visible_topics: Container[str] | None = None

    def refusal(self, response: Any, error: KafkaError) -> Any:
        told = error_of_failed_append(error)
        code = told.code
        if isinstance(response, (OffsetCommitResponse, TxnOffsetCommitResponse)):
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.error_code = code
            return response
        if isinstance(response, DeleteGroupsResponse):
            for result in response.results:
                result.error_code = code
            return response
        if isinstance(response, JoinGroupResponse):
            return join_error(self, code, response.member_id)
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=str(error))
        if isinstance(response, SyncGroupResponse):
            return SyncGroupResponse(error_code=code)
        if isinstance(response, HeartbeatResponse):
            return HeartbeatResponse(error_code=code)
        if isinstance(response, LeaveGroupResponse):
            return LeaveGroupResponse(error_code=code)
        assert isinstance(response, OffsetDeleteResponse)
        return OffsetDeleteResponse(error_code=code)


def join_error(
    caller: Caller, code: int, member_id: str, protocol_name: str | None = None
) -> JoinGroupResponse:
    if protocol_name is None and caller.version < _FIRST_JOIN_WITHOUT_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=protocol_name)
