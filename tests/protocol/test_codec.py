from __future__ import annotations

import tracemalloc
from typing import Any, Final

import pytest

from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.protocol.codec import decode, decode_prefix, encode, encode_into
from barnabas.protocol.errors import (
    DecodeError,
    EncodeError,
    FieldNotInVersion,
    InvalidValue,
    UnsupportedMessageVersion,
)
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse
from barnabas.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.request_header import RequestHeader
from barnabas.protocol.messages.response_header import ResponseHeader
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest

OVERLONG: Final = "the count is a varint above 2147483647 or of more than 5 bytes"


def produce_request(records: bytes | memoryview) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def refused(message_class: type[Any], data: bytes, version: int) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode(message_class, data, version)
    return caught.value


def test_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(encode(produce_request(b"records"), 9))
    records = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"records"
    frame[frame.index(b"records")] = ord("R")
    assert bytes(records) == b"Records"


def test_a_view_can_be_encoded() -> None:
    assert encode(produce_request(memoryview(b"records")), 9) == encode(produce_request(b"records"), 9)


def test_encoding_appends() -> None:
    out = bytearray(b"before")
    encode_into(out, ResponseHeader(correlation_id=5), 0)
    assert out == b"before\0\0\0\x05"


def test_a_message_that_cannot_be_written_leaves_the_buffer_as_it_was() -> None:
    out = bytearray(b"before")
    request = SaslHandshakeRequest(mechanism="x" * 32768)
    with pytest.raises(EncodeError):
        encode_into(out, request, 1)
    assert out == b"before"


@pytest.mark.parametrize("version", [-1, 3, 32767])
def test_a_version_that_does_not_exist(version: int) -> None:
    with pytest.raises(UnsupportedMessageVersion, match=rf"RequestHeader has no version {version}, only 0-2"):
        encode(RequestHeader(), version)
    with pytest.raises(UnsupportedVersion):
        decode(RequestHeader, bytes(20), version)


def test_a_field_that_a_version_does_not_have() -> None:
    # Not ignorable: LastFetchedEpoch exists from version 12.
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(last_fetched_epoch=4)])])
    assert encode(request, 12)
    with pytest.raises(FieldNotInVersion) as caught:
        encode(request, 11)
    assert caught.value.field == "topics[0].partitions[0].lastFetchedEpoch"
    assert caught.value.code == UnsupportedVersion.code
    # Ignorable: RackId exists from version 11, and is lost before.
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FetchRequest(replica_id=3), 15),
        (FetchRequest(replica_state=ReplicaState(replica_id=3)), 14),
        (ListOffsetsRequest(isolation_level=1), 1),
        (MetadataRequest(allow_auto_topic_creation=False), 3),
    ],
)
def test_other_kinds_of_fields_that_a_version_does_not_have(request_: Any, version: int) -> None:
    with pytest.raises(FieldNotInVersion):
        encode(request_, version)


def test_null_in_a_version_that_does_not_know_it() -> None:
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(InvalidValue) as caught:
        encode(MetadataRequest(topics=None), 0)
    assert (caught.value.field, caught.value.reason) == ("topics", "null, which this field cannot be")
    error = refused(MetadataRequest, b"\xff\xff\xff\xff", 0)
    assert (error.field, error.position, error.reason) == ("topics", 0, "null, which this field cannot be")


@pytest.mark.parametrize(
    ("message", "version", "field", "reason"),
    [
        (ResponseHeader(correlation_id=2**31), 0, "correlationId", "2147483648 is not int32"),
        (HeartbeatRequest(generation_id="5"), 0, "generationId", "'5' is not int32"),  # type: ignore[arg-type]
        (SaslHandshakeRequest(mechanism=None), 1, "mechanism", "null, which this field cannot be"),  # type: ignore[arg-type]
        (SaslHandshakeRequest(mechanism=b"m"), 1, "mechanism", "a str wanted, not bytes"),  # type: ignore[arg-type]
        (SaslHandshakeRequest(mechanism="\ud800"), 1, "mechanism", "cannot be written as UTF-8"),
        (ApiVersionsRequest(client_software_name="n" * 32768), 3, "clientSoftwareName", "a string of 32768 bytes"),
        (SaslAuthenticateRequest(auth_bytes="text"), 2, "authBytes", "bytes wanted, not str"),  # type: ignore[arg-type]
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"id")]), 12, "topics[0].topicId", "16 bytes wanted"),
        (FetchRequest(topics=[FetchTopic(), ReplicaState()]), 4, "topics[1]", "FetchTopic wanted, not ReplicaState"),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_values_that_do_not_fit(message: Any, version: int, field: str, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode(message, version)
    assert caught.value.field == field
    assert caught.value.reason.startswith(reason)
    assert isinstance(caught.value, KafkaError)


def test_faults_name_message_version_field_and_position() -> None:
    topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition()]) for name in ("ab", "cd")]
    data = encode(ListOffsetsRequest(replica_id=-1, topics=topics), 1)
    error = refused(ListOffsetsRequest, data[:-3], 1)
    assert error.message == "ListOffsetsRequest"
    assert error.version == 1
    assert error.field == "topics[1].partitions[0].timestamp"
    assert error.position == len(data) - 8
    assert str(error) == (
        "ListOffsetsRequest v1: field topics[1].partitions[0].timestamp at byte 40: int64 needs 8 bytes, 5 are left"
    )
    assert isinstance(error, InvalidRequest)
    assert error.code == InvalidRequest.code


def test_elements_of_all_arrays_and_tagged_fields_count() -> None:
    partitions = [ListOffsetsPartition(partition_index=index) for index in range(3)]
    topics = [ListOffsetsTopic(name=name, partitions=partitions) for name in ("ab", "cd")]
    topics[1].unknown_tagged_fields = ((5, b"x"),)
    data = encode(ListOffsetsRequest(topics=topics), 6)
    message, _ = decode_prefix(ListOffsetsRequest, data, 6, elements_max=9)
    assert [len(topic.partitions) for topic in message.topics] == [3, 3]
    with pytest.raises(DecodeError, match="ListOffsetsRequest v6: at byte 0: more than 8 elements"):
        decode_prefix(ListOffsetsRequest, data, 6, elements_max=8)


def test_positions_count_from_the_start_of_the_buffer() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_prefix(ResponseHeader, bytes(10), 0, position=8)
    assert caught.value.position == 8


@pytest.mark.parametrize(
    ("message_class", "version", "data", "field", "position", "reason"),
    [
        (SaslHandshakeRequest, 1, "00", "mechanism", 0, "the length needs 2 bytes, 1 are left"),
        (SaslHandshakeRequest, 1, "000361", "mechanism", 0, "the length is 3, 1 bytes are left"),
        (SaslHandshakeRequest, 1, "ffff", "mechanism", 0, "null, which this field cannot be"),
        (MetadataRequest, 1, "00000002ffff", "topics[0].name", 4, "null, which this field cannot be"),
        (MetadataRequest, 1, "7fffffff00", "topics", 0, "the count is 2147483647, 1 bytes are left"),
        (MetadataRequest, 9, "ffffffff07", "topics", 0, "the count is 2147483646, 0 bytes are left"),
        (MetadataRequest, 9, "ffffffff0f", "topics", 0, OVERLONG),
        (MetadataRequest, 9, "ffffffffff00", "topics", 0, OVERLONG),
        (MetadataRequest, 9, "80", "topics", 0, "the bytes end within the count"),
        (SaslAuthenticateRequest, 2, "", "authBytes", 0, "the bytes end within the length"),
        (ApiVersionsRequest, 3, "81800200", "clientSoftwareName", 0, "a string of 32768 bytes; 32767 are allowed"),
        (ResponseHeader, 1, "00000000010501", "", 5, "tag 5 has 1 bytes, 0 are left"),
        (ResponseHeader, 1, "0000000002050005", "", 8, "the bytes end within the size of tag 5"),
        (ResponseHeader, 1, "000000000205000500", "", 7, "tag 5 stands behind tag 5"),
        (ResponseHeader, 1, "0000000001", "", 5, "the bytes end within a tag"),
        (ResponseHeader, 1, "00000000", "", 4, "the bytes end within the count of tagged fields"),
        (ResponseHeader, 0, "0000000000", "", 4, "1 bytes left over"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_the_message(
    message_class: type[Any], version: int, data: str, field: str, position: int, reason: str
) -> None:
    error = refused(message_class, bytes.fromhex(data), version)
    assert (error.field, error.position, error.reason) == (field, position, reason)


def test_a_known_tag_must_fill_its_size() -> None:
    data = encode(FetchRequest(cluster_id="abc"), 12)
    assert data.endswith(b"\x01\x00\x04\x04abc")
    longer = data[:-6] + b"\x00\x05\x04abc\x00"
    error = refused(FetchRequest, longer, 12)
    assert error.field == "clusterId"
    assert error.reason == "tag 0 has a size of 5, which its value does not fill"
    assert error.position == len(data) - 6


def test_a_known_tag_of_a_later_version_is_refused() -> None:
    data = encode(FetchRequest(), 12)
    error = refused(FetchRequest, data[:-1] + b"\x01\x01\x00", 12)
    assert (error.field, error.reason) == ("replicaState", "tag 1 is not known to this version")


def test_a_count_is_checked_before_anything_is_allocated() -> None:
    # 2³¹ - 1 strings, structs, integers or bytes, in a few bytes.
    tracemalloc.start()
    try:
        for message_class, version, data in (
            (MetadataRequest, 1, b"\x7f\xff\xff\xff" + bytes(16)),
            (MetadataRequest, 9, b"\xff\xff\xff\xff\x07" + bytes(16)),
            (SaslAuthenticateRequest, 1, b"\x7f\xff\xff\xff" + bytes(16)),
            (ResponseHeader, 1, bytes(4) + b"\xff\xff\xff\xff\x07"),
            (MetadataResponse, 1, bytes(4) + b"\xff\xff" + b"\x7f\xff\xff\xff" + bytes(16)),
        ):
            refused(message_class, data, version)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_leniency_is_kafkas() -> None:
    # Any negative length is null, any byte but 0 is true, and what is not UTF-8 is replaced.
    assert decode(MetadataRequest, b"\x80\0\0\0", 1).topics is None
    assert decode(MetadataRequest, b"\0\0\0\0\x07", 4).allow_auto_topic_creation is True
    assert decode(SaslHandshakeRequest, b"\0\x03a\xffb", 1).mechanism == "a\N{REPLACEMENT CHARACTER}b"
    # A varint may be longer than it has to be.
    assert decode(ResponseHeader, b"\0\0\0\x01\x80\0", 1) == ResponseHeader(correlation_id=1)


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    topic = TopicPartitions(topic_id=bytes(range(16)), partitions=[1, 2])
    response = ConsumerGroupHeartbeatResponse(assignment=Assignment(topic_partitions=[topic]))
    absent = encode(ConsumerGroupHeartbeatResponse(), 0)
    assert absent.endswith(b"\xff\0")
    present = encode(response, 0)
    assert present[: len(absent) - 2] == absent[:-2]
    assert present[len(absent) - 2] == 1
    assert decode(ConsumerGroupHeartbeatResponse, present, 0) == response
    assert decode(ConsumerGroupHeartbeatResponse, absent, 0).assignment is None


def test_a_null_struct_in_a_tagged_field() -> None:
    default = encode(ConsumerGroupMemberMetadataValue(), 0)
    assert default.endswith(b"\0")
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    data = encode(null, 0)
    # One tagged field: tag 0, one byte, which says null.
    assert data == default[:-1] + b"\x01\x00\x01\x00"
    assert decode(ConsumerGroupMemberMetadataValue, data, 0) == null


def test_tagged_fields_at_their_default_are_absent() -> None:
    assert encode(FetchRequest(cluster_id="c"), 12) != encode(FetchRequest(), 12)
    data = encode(FetchRequest(replica_state=ReplicaState()), 15)
    assert data == encode(FetchRequest(), 15)


def test_unknown_tagged_fields_are_kept_in_the_order_of_tags() -> None:
    request = FetchRequest(cluster_id="c", unknown_tagged_fields=((2, b""), (1000, b"zz")))
    data = encode(request, 12)
    assert data.endswith(b"\x03" + b"\x00\x02\x02c" + b"\x02\x00" + b"\xe8\x07\x02zz")
    assert decode(FetchRequest, data, 12) == request
    inner = FetchRequest(topics=[FetchTopic(topic="t", unknown_tagged_fields=((7, b"seven"),))])
    assert decode(FetchRequest, encode(inner, 12), 12) == inner


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (((0, b""),), "tag 0 belongs to a field of the schema"),
        (((5, b""), (5, b"")), "tag 5 stands behind tag 5"),
        (((6, b""), (5, b"")), "tag 5 stands behind tag 6"),
        (((-1, b""),), "tag -1 stands behind tag -1"),
        (((2**31, b""),), "tag 2147483648 stands behind tag -1"),
        (((5, "text"),), "tag 5: bytes wanted, not str"),
    ],
)
def test_unknown_tagged_fields_that_cannot_be_written(fields: Any, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode(FetchRequest(unknown_tagged_fields=fields), 12)
    assert (caught.value.field, caught.value.reason) == ("unknownTaggedFields", reason)


def test_a_classic_version_has_no_tagged_fields() -> None:
    with pytest.raises(FieldNotInVersion) as caught:
        encode(FetchRequest(unknown_tagged_fields=((5, b""),)), 11)
    assert caught.value.reason == "this version has no tagged fields"


def test_the_client_id_of_a_header_is_never_compact() -> None:
    header = RequestHeader(request_api_key=1, request_api_version=12, correlation_id=7, client_id="me")
    assert encode(header, 2) == bytes.fromhex("0001000c00000007") + b"\0\x02me" + b"\0"
    assert decode(RequestHeader, encode(header, 2), 2) == header
