"""Requests with something wrong in them, all from a seed.

The good requests are of two kinds: golden ones, which have every field filled with something, and ones that
concern a topic that exists, which get further into the broker. A mutation may well leave a request valid: then it does
what it says. Only what would change the broker for everybody is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from barnabas.broker.requests.routes import ROUTES
from barnabas.errors import KafkaError
from barnabas.protocol.apis import Api, api_for_name
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_configs_request import AlterConfigsRequest
from barnabas.protocol.messages.create_topics_request import CreateTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.request_header import RequestHeader
from barnabas.protocol.requests import decode_request_header, encode_request
from barnabas.records.layout import CompressionType
from tests.broker.record_requests import batch, fetch_request, produce_request
from tests.protocol.golden import golden_messages

TARGET: Final = "target"
TARGET_PARTITIONS: Final = 3
# As many partitions as a mutated request may create: each costs the machine a directory and its files.
CREATED_PARTITIONS_MAX: Final = 200
# As long as the shortest header with a client id is.
HEADER_BYTES: Final = 14
BATCHES_VERSION: Final = 3

_EXTREMES: Final = [
    number.to_bytes(size, "big", signed=True)
    for size in (1, 2, 4, 8)
    for number in (-1, 0, 1, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)
]


def good_requests() -> list[bytes]:
    """Frames without their size."""
    found: list[bytes] = []
    routes = {f"{route.name}Request": route for route in ROUTES}
    for golden in golden_messages():
        route = routes.get(golden.message)
        if route is not None and route.first_version <= golden.version <= route.last_version:
            found.append(_header(route.api, golden.version) + golden.data)
    for name, version, body in _live_requests():
        found.append(bytes(encode_request(api_for_name(name), version, 7, "live", body)))
    return found


def _header(api: Api, version: int) -> bytes:
    header = RequestHeader(request_api_key=api.key, request_api_version=version, correlation_id=7)
    return encode(header, api.request_header_version(version))


def _live_requests() -> Iterator[tuple[str, int, Message]]:
    for version in range(BATCHES_VERSION, 13):
        for compression in (CompressionType.NONE, CompressionType.GZIP):
            for acks in (-1, 0, 1):
                records = batch(b"one", b"two", None, compression=compression)
                yield "Produce", version, produce_request(TARGET, records, acks=acks)
    for version in range(4, 13):
        yield "Fetch", version, fetch_request(TARGET, 0, max_wait_ms=1)
        yield "Fetch", version, fetch_request(TARGET, 1_000_000, max_wait_ms=1, isolation_level=1)
    for version in range(1, 12):
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        topics = [ListOffsetsTopic(name=TARGET, partitions=partitions)]
        yield "ListOffsets", version, ListOffsetsRequest(replica_id=-1, topics=topics)
    for version in range(4, 14):
        topic = MetadataRequestTopic(name=TARGET)
        yield "Metadata", version, MetadataRequest(topics=[topic], allow_auto_topic_creation=False)


def mutated_requests(seed: int, count: int) -> Iterator[bytes]:
    """Whole frames, each in one go to be sent."""
    rng = random.Random(seed)
    good = good_requests()
    produced = 0
    while produced < count:
        frame = _mutate(rng, good)
        if _is_bounded(frame):
            produced += 1
            yield _sized(rng, frame)


def _mutate(rng: random.Random, good: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(good))
    # Most mutations leave the header alone: a request that has no API gets nowhere.
    first = HEADER_BYTES if rng.random() < 0.8 else 0
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        position = rng.randrange(first, len(frame)) if len(frame) > first else len(frame)
        kind = rng.randrange(7) if position < len(frame) else 4
        if kind == 0:
            frame[position] ^= 1 << rng.randrange(8)
        elif kind == 1:
            frame[position] = rng.randrange(256)
        elif kind == 2:
            extreme = rng.choice(_EXTREMES)
            frame[position : position + len(extreme)] = extreme
        elif kind == 3:
            del frame[position:]
        elif kind == 4:
            frame[position:position] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 5:
            del frame[position : position + rng.randrange(1, 9)]
        else:
            other = rng.choice(good)
            frame[position:] = other[rng.randrange(len(other)) :]
    return bytes(frame)


def _sized(rng: random.Random, frame: bytes) -> bytes:
    size = len(frame)
    if rng.random() < 0.02:
        size = rng.choice((0, -1, size + 1, max(size - 1, 0), 2**31 - 1, -(2**31), 104_857_600))
    return size.to_bytes(4, "big", signed=True) + frame


def _is_bounded(frame: bytes) -> bool:
    """Whether what the request asks for, if it is a good one, leaves the machine and the other clients alone."""
    try:
        api, header, position = decode_request_header(frame)
        body, _ = decode_prefix(api.request_class(), frame, header.request_api_version, position)
    except KafkaError:
        return True
    if api.name == "AlterClientQuotas":
        return False
    if isinstance(body, AlterConfigsRequest | IncrementalAlterConfigsRequest):
        topic_resource = 2
        return all(resource.resource_type == topic_resource for resource in body.resources)
    if isinstance(body, CreateTopicsRequest):
        wanted = sum(max(len(topic.assignments), topic.num_partitions, 1) for topic in body.topics)
        return wanted <= CREATED_PARTITIONS_MAX or wanted > 10_000
    return True
