"""Messages decoded and encoded by Barnabas, kafka-python and kio: the same bytes, the newest version, in one run."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from bench.table import Measurement, Table, duration, measure, ratio, verdict

OURS: Final = "barnabas"
KAFKA_PYTHON: Final = "kafka-python"
KIO: Final = "kio"

KAFKA_PYTHON_RATIO_MIN: Final = 3.0
PRODUCE_DECODE_S_MAX: Final = 5e-6

# Many short rounds: each contender finds its share of quiet moments on a busy machine.
ROUNDS: Final = 40
ROUND_S: Final = 0.004

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A message, and where the peers keep its type: kafka-python's package, kio's module."""

    title: str
    message: Message
    version: int
    kafka_python: str
    kio: str
    decode_s_max: float | None = None


def cases() -> list[Case]:
    return [
        Case(
            title="ApiVersions response, 75 APIs",
            message=api_versions(),
            version=4,
            kafka_python="kafka.protocol.metadata",
            kio="kio.schema.api_versions.v4.response",
        ),
        Case(
            title="Metadata response, 100 topics × 8 partitions",
            message=metadata(topics=100, partitions=8),
            version=13,
            kafka_python="kafka.protocol.metadata",
            kio="kio.schema.metadata.v13.response",
        ),
        Case(
            title="Produce request, 1 × 64 KiB",
            message=produce(partitions=1, size_bytes=64 * 1024),
            version=13,
            kafka_python="kafka.protocol.producer",
            kio="kio.schema.produce.v13.request",
            decode_s_max=PRODUCE_DECODE_S_MAX,
        ),
        Case(
            title="Produce request, 50 × 1 KiB",
            message=produce(partitions=50, size_bytes=1024),
            version=13,
            kafka_python="kafka.protocol.producer",
            kio="kio.schema.produce.v13.request",
        ),
        Case(
            title="Fetch request, 100 partitions",
            message=fetch(partitions=100),
            version=18,
            kafka_python="kafka.protocol.consumer",
            kio="kio.schema.fetch.v18.request",
        ),
        Case(
            title="Fetch response, 100 × 1 KiB",
            message=fetched(partitions=100, size_bytes=1024),
            version=18,
            kafka_python="kafka.protocol.consumer",
            kio="kio.schema.fetch.v18.response",
        ),
    ]


def api_versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=0, max_version=key % 14) for key in range(75)],
        supported_features=[SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)],
        finalized_features_epoch=12,
        finalized_features=[
            FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
        ],
    )


def metadata(*, topics: int, partitions: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"broker-{node}.example.org", port=9092, rack="a")
            for node in range(3)
        ],
        cluster_id="5L6g3nShT-eMCtK--X86sw",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"orders-{topic}",
                topic_id=uuid(topic),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=partition,
                        leader_id=partition % 3,
                        leader_epoch=7,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                    )
                    for partition in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def produce(*, partitions: int, size_bytes: int) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                topic_id=uuid(1),
                partition_data=[
                    PartitionProduceData(index=index, records=bytes(size_bytes))
                    for index in range(partitions)
                ],
            )
        ],
    )


def fetch(*, partitions: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic_id=uuid(1),
                partitions=[
                    FetchPartition(
                        partition=index, fetch_offset=1_000_000 + index, partition_max_bytes=1 << 20
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def fetched(*, partitions: int, size_bytes: int) -> FetchResponse:
    return FetchResponse(
        session_id=77,
        responses=[
            FetchableTopicResponse(
                topic_id=uuid(1),
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=1_000_000 + index,
                        last_stable_offset=1_000_000 + index,
                        log_start_offset=0,
                        # A broker's response to a consumer that reads uncommitted records.
                        aborted_transactions=None,
                        records=bytes(size_bytes),
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def uuid(number: int) -> bytes:
    return (0x5EED << 64 | number).to_bytes(16, "big")


def contenders(case: Case) -> tuple[dict[str, Call], dict[str, Call]]:
    """The decoders and encoders.

    Each must reproduce the exact bytes that it was given, otherwise nothing is compared.
    """
    data = encode(case.message, case.version)
    decoding: dict[str, Call] = {}
    encoding: dict[str, Call] = {}
    for name, codec in ((OURS, ours), (KAFKA_PYTHON, kafka_python), (KIO, kio)):
        decoding[name], encoding[name] = codec(case, data)
        again = encoding[name]()
        assert again == data, f"{name} writes {case.title} differently"
    return decoding, encoding


def ours(case: Case, data: bytes) -> tuple[Call, Call]:
    message_type, version = type(case.message), case.version
    message = decode(message_type, data, version)
    return lambda: decode(message_type, data, version), lambda: encode(message, version)


def kafka_python(case: Case, data: bytes) -> tuple[Call, Call]:
    message_type = getattr(importlib.import_module(case.kafka_python), type(case.message).__name__)
    version = case.version
    message = message_type.decode(data, version=version)
    # Its decoder leaves this out, and its encoder asks for it.
    message._header = None
    return lambda: message_type.decode(data, version=version), lambda: message.encode(version=version)


def kio(case: Case, data: bytes) -> tuple[Call, Call]:
    serial = importlib.import_module("kio.serial")
    message_type = getattr(importlib.import_module(case.kio), type(case.message).__name__)
    read: Callable[[bytes, int], tuple[Any, int]] = serial.entity_reader(message_type)
    write: Callable[[io.BytesIO, Any], None] = serial.entity_writer(message_type)
    message, _ = read(data, 0)

    def write_message() -> bytes:
        out = io.BytesIO()
        write(out, message)
        return out.getvalue()

    return lambda: read(data, 0), write_message


def run() -> bool:
    table = Table(
        "Codecs, one message",
        ("message", "", OURS, KAFKA_PYTHON, KIO, "to kafka-python", "to kio", "target"),
    )
    all_met = True
    for case in cases():
        for direction, calls in zip(("decode", "encode"), contenders(case), strict=True):
            measured = measure(calls, rounds=ROUNDS, round_s=ROUND_S)
            limit_s = case.decode_s_max if direction == "decode" else None
            met = is_met(measured, limit_s)
            all_met &= met
            best = {name: measurement.best_s for name, measurement in measured.items()}
            table.add(
                case.title,
                direction,
                *(duration(best[name]) for name in (OURS, KAFKA_PYTHON, KIO)),
                ratio(best[KAFKA_PYTHON] / best[OURS]),
                ratio(best[KIO] / best[OURS]),
                verdict(met),
            )
    table.print()
    print(
        f"Targets: the fastest in every row, {KAFKA_PYTHON_RATIO_MIN:g}× {KAFKA_PYTHON} at least, "
        f"a Produce request of one partition decoded in {duration(PRODUCE_DECODE_S_MAX)}."
    )
    return all_met


def is_met(measured: dict[str, Measurement], limit_s: float | None) -> bool:
    best = {name: measurement.best_s for name, measurement in measured.items()}
    return (
        best[OURS] <= best[KIO]
        and best[OURS] * KAFKA_PYTHON_RATIO_MIN <= best[KAFKA_PYTHON]
        and (limit_s is None or best[OURS] <= limit_s)
    )
