from __future__ import annotations

import pytest

from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages import message_class
from barnabas.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.produce_request import PartitionProduceData
from barnabas.protocol.schema import load_schema, message_names, snake_case
from tools.messages import MESSAGES_PATH, module_text


def test_the_modules_are_what_the_generator_writes_today() -> None:
    expected = {f"{snake_case(name)}.py": module_text(load_schema(name)) for name in message_names()}
    written = {path.name for path in MESSAGES_PATH.glob("*.py")} - {"__init__.py"}
    assert written == expected.keys()
    for name, text in expected.items():
        assert (MESSAGES_PATH / name).read_text(encoding="utf-8") == text, f"{name}: run `make messages`"


def test_every_message_can_be_made_of_its_defaults() -> None:
    for name in message_names():
        message_type = message_class(name)
        assert message_type() == message_type()
        assert message_type.__name__ == name


def test_defaults_are_kafkas() -> None:
    request = FetchRequest()
    assert request.cluster_id is None
    assert request.replica_id == -1
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert request.max_bytes == 0x7FFFFFFF
    assert request.topics == []
    assert request.rack_id == ""
    assert request.unknown_tagged_fields == ()
    assert FetchPartition().replica_directory_id == ZERO_UUID
    assert PartitionProduceData().records is None
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None
    assert ConsumerGroupMemberMetadataValue().classic_member_metadata == ClassicMemberMetadata()
    assert ConsumerGroupMemberMetadataValue(classic_member_metadata=None).classic_member_metadata is None


def test_messages_do_not_share_their_defaults() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic(topic="a"))
    one.replica_state.replica_id = 7
    assert other == FetchRequest()
    assert one != other


def test_messages_show_what_they_hold() -> None:
    data = PartitionProduceData(index=3, records=memoryview(b"abc"))
    assert repr(data) == "PartitionProduceData(index=3, records=<3 bytes>)"
    data.unknown_tagged_fields = ((9, b"x"),)
    assert "unknown_tagged_fields=((9, b'x'),)" in repr(data)


def test_messages_are_slotted_and_not_hashable() -> None:
    with pytest.raises(AttributeError):
        FetchRequest().no_such_field = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(FetchRequest())


def test_an_unknown_name_is_a_key_error() -> None:
    for name in ("NoSuchMessage", "../FetchRequest", ""):
        with pytest.raises(KeyError):
            message_class(name)
