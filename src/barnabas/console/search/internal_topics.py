"""Records of Kafka's internal topics, decoded: `__consumer_offsets` and `__transaction_state`.

key    int16 type     | the message of that type, version 0
value  int16 version  | the message in that version
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

from barnabas.errors import KafkaError
from barnabas.protocol.codec import decode
from barnabas.protocol.json_form import to_json
from barnabas.protocol.messages import message_class

_TYPE: Final = Struct(
    ">h"  # key: the type; value: version
)
# The names of the messages by type; "Key" and "Value" follow.
TYPES: Final[Mapping[str, Mapping[int, str]]] = {
    "__consumer_offsets": {
        0: "LegacyOffsetCommit",
        1: "OffsetCommit",
        2: "GroupMetadata",
        3: "ConsumerGroupMetadata",
        4: "ConsumerGroupPartitionMetadata",
        5: "ConsumerGroupMemberMetadata",
        6: "ConsumerGroupTargetAssignmentMetadata",
        7: "ConsumerGroupTargetAssignmentMember",
        8: "ConsumerGroupCurrentMemberAssignment",
        10: "ShareGroupMemberMetadata",
        11: "ShareGroupMetadata",
        12: "ShareGroupTargetAssignmentMetadata",
        13: "ShareGroupTargetAssignmentMember",
        14: "ShareGroupCurrentMemberAssignment",
        15: "ShareGroupStatePartitionMetadata",
        16: "ConsumerGroupRegularExpression",
        17: "StreamsGroupMetadata",
        19: "StreamsGroupMemberMetadata",
        20: "StreamsGroupTargetAssignmentMetadata",
        21: "StreamsGroupTargetAssignmentMember",
        22: "StreamsGroupCurrentMemberAssignment",
        23: "StreamsGroupTopology",
    },
    "__transaction_state": {0: "TransactionLog"},
}


def decoded(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """The type, key and value of a record; None for other topics, and for bytes that are none of these messages."""
    types = TYPES.get(topic)
    if types is None or key is None or len(key) < _TYPE.size:
        return None
    name = types.get(_TYPE.unpack_from(key)[0])
    if name is None:
        return None
    try:
        return {"type": name, "key": _message(f"{name}Key", key, 0), "value": _value(name, value)}
    except (KafkaError, KeyError):
        return None


def _value(name: str, value: bytes | None) -> dict[str, Any] | None:
    if value is None or len(value) < _TYPE.size:
        return None
    return _message(f"{name}Value", value, _TYPE.unpack_from(value)[0])


def _message(name: str, data: bytes, version: int) -> dict[str, Any]:
    return to_json(decode(message_class(name), data, version, _TYPE.size), version)
