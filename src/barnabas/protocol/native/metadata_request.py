"""Reads and writes MetadataRequest, versions 0-13.

Written by `make messages` from schemas/MetadataRequest.json.
"""

from __future__ import annotations

from librt.strings import (
    BytesWriter,
)
from mypy_extensions import i64

from barnabas.protocol.errors import Malformed
from barnabas.protocol.message import ZERO_UUID, Buffer
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.native.wire import (
    Budget,
    Splices,
    read_nullable_count,
    read_nullable_string,
    read_tags,
    read_uuid,
    write_bool,
    write_count,
    write_nullable_string,
    write_unknown_tags,
    write_uuid,
)


def read_metadata_request_topic(
    data: bytes, pos: i64, version: i64, budget: Budget
) -> tuple[MetadataRequestTopic, i64]:
    flexible = version >= 9
    topic_id: bytes = ZERO_UUID
    if version >= 10:
        topic_id = read_uuid(data, pos)
        pos += 16
    name, pos = read_nullable_string(data, pos, flexible)
    if name is None and version < 10:
        raise Malformed
    item = MetadataRequestTopic(topic_id=topic_id, name=name)
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_metadata_request_topic(out: BytesWriter, item: MetadataRequestTopic, version: i64) -> None:
    flexible = version >= 9
    if version >= 10:
        write_uuid(out, item.topic_id)
    if item.name is None and version < 10:
        raise Malformed
    write_nullable_string(out, item.name, flexible)
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def read_metadata_request(data: bytes, pos: i64, version: i64, budget: Budget) -> tuple[MetadataRequest, i64]:
    flexible = version >= 9
    count, pos = read_nullable_count(data, pos, flexible, budget)
    if count < 0 and version < 1:
        raise Malformed
    if count < 0:
        topics = None
    else:
        topics = []
        for _ in range(count):
            topics_item, pos = read_metadata_request_topic(data, pos, version, budget)
            topics.append(topics_item)
    allow_auto_topic_creation: bool = True
    if version >= 4:
        allow_auto_topic_creation = data[pos] != 0
        pos += 1
    include_cluster_authorized_operations: bool = False
    if 8 <= version <= 10:
        include_cluster_authorized_operations = data[pos] != 0
        pos += 1
    include_topic_authorized_operations: bool = False
    if version >= 8:
        include_topic_authorized_operations = data[pos] != 0
        pos += 1
    item = MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_cluster_authorized_operations=include_cluster_authorized_operations,
        include_topic_authorized_operations=include_topic_authorized_operations,
    )
    if flexible:
        if data[pos] == 0:
            pos += 1
        else:
            item.unknown_tagged_fields, pos = read_tags(data, pos, budget)
    return item, pos


def write_metadata_request(out: BytesWriter, item: MetadataRequest, version: i64) -> None:
    flexible = version >= 9
    topics = item.topics
    if topics is None and version < 1:
        raise Malformed
    if topics is None:
        write_count(out, -1, flexible)
    else:
        write_count(out, len(topics), flexible)
        for topics_item in topics:
            write_metadata_request_topic(out, topics_item, version)
    if version >= 4:
        write_bool(out, item.allow_auto_topic_creation)
    elif not item.allow_auto_topic_creation:
        raise Malformed
    if 8 <= version <= 10:
        write_bool(out, item.include_cluster_authorized_operations)
    elif item.include_cluster_authorized_operations:
        raise Malformed
    if version >= 8:
        write_bool(out, item.include_topic_authorized_operations)
    elif item.include_topic_authorized_operations:
        raise Malformed
    if flexible:
        write_unknown_tags(out, item.unknown_tagged_fields)
    elif item.unknown_tagged_fields:
        raise Malformed


def decode(version: i64, source: Buffer, position: i64, elements_max: i64) -> tuple[MetadataRequest, i64]:
    data = source if isinstance(source, bytes) else bytes(source)
    return read_metadata_request(data, position, version, Budget(elements_max))


def encode(version: i64, message: MetadataRequest, wanted: Splices | None = None) -> bytes:
    out = BytesWriter()
    write_metadata_request(out, message, version)
    return out.getvalue()
