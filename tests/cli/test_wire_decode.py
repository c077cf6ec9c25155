from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.model import Offset, ProducerId, TimestampMs
from barnabas.protocol.apis import APIS, Api, api_for_name
from barnabas.protocol.codec import encode
from barnabas.protocol.frames import SIZE
from barnabas.protocol.messages.api_versions_response import ApiVersionsResponse
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from barnabas.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.request_header import RequestHeader
from barnabas.protocol.messages.response_header import ResponseHeader
from barnabas.protocol.requests import encode_request, encode_response
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import CompressionType
from tests.cli.conftest import Barnabas
from tests.protocol.golden import GoldenMessage, golden_messages

METADATA = api_for_name("Metadata")
API_VERSIONS = api_for_name("ApiVersions")


def framed(payload: bytes | bytearray) -> bytes:
    return SIZE.pack(len(payload)) + payload


def metadata_request(correlation_id: int = 7) -> bytearray:
    topic = MetadataRequestTopic(name="größe", unknown_tagged_fields=((9, b"\x01\x02"),))
    return encode_request(METADATA, 12, correlation_id, "cli", MetadataRequest(topics=[topic]))


def golden_bodies(suffix: str) -> list[tuple[Api, GoldenMessage]]:
    apis = {api.name + suffix: api for api in APIS}
    return [(apis[golden.message], golden) for golden in golden_messages() if golden.message in apis]


def request_stream() -> bytes:
    """Every golden request, each behind a header; correlation ids count from 0."""
    stream = b""
    for correlation_id, (api, golden) in enumerate(golden_bodies("Request")):
        header = RequestHeader(
            request_api_key=api.key, request_api_version=golden.version, correlation_id=correlation_id
        )
        stream += framed(encode(header, api.request_header_version(golden.version)) + golden.data)
    return stream


def documents(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def without_unknown_tags(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_unknown_tags(inner) for name, inner in value.items() if name != "unknownTags"}
    return [without_unknown_tags(inner) for inner in value] if isinstance(value, list) else value


def assert_bodies(found: list[dict[str, Any]], expected: list[tuple[Api, GoldenMessage]]) -> None:
    assert len(found) == len(expected)
    for document, (api, golden) in zip(found, expected, strict=True):
        assert (document["api"], document["version"]) == (api.name, golden.version)
        assert without_unknown_tags(document["body"]) == golden.json, str(golden)


def test_a_capture_of_requests_needs_only_the_direction(barnabas: Barnabas) -> None:
    result = barnabas("wire", "decode", "--direction", "request", "--compact", stdin=request_stream())
    assert (result.exit_code, result.stderr) == (0, "")
    found = documents(result.stdout)
    assert_bodies(found, golden_bodies("Request"))
    assert [document["header"]["correlationId"] for document in found] == list(range(len(found)))


def test_a_capture_of_requests_explains_the_responses(barnabas: Barnabas, tmp_path: Path) -> None:
    requests = tmp_path / "requests.bin"
    requests.write_bytes(request_stream())
    ids = {(api.key, golden.version): number for number, (api, golden) in enumerate(golden_bodies("Request"))}
    answered = {
        (api.key, golden.version): (api, golden)
        for api, golden in golden_bodies("Response")
        # An answer that refuses the version is another form, and has a test of its own.
        if api.key != API_VERSIONS.key or golden.json["errorCode"] != 35
    }
    stream = b""
    for (key, version), (api, golden) in answered.items():
        header = ResponseHeader(correlation_id=ids[key, version])
        stream += framed(encode(header, api.response_header_version(version)) + golden.data)
    result = barnabas(
        "wire", "decode", "--direction", "response", "--requests", requests, "--compact", stdin=stream
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert_bodies(documents(result.stdout), list(answered.values()))


@pytest.mark.parametrize(
    "written",
    [
        lambda data: data,
        lambda data: data.hex().encode(),
        lambda data: data.hex(" ").upper().encode() + b"\n",
        lambda data: data.hex(":", 2).encode(),
        lambda data: b"\n".join(b"0x%02x," % byte for byte in data),
        lambda data: b'"' + b"".join(b"\\x%02x" % byte for byte in data) + b'"',
    ],
    ids=["binary", "hex", "spaces", "colons", "0x", "escapes"],
)
def test_hex_and_binary(barnabas: Barnabas, tmp_path: Path, written: Any) -> None:
    path = tmp_path / "frame"
    path.write_bytes(written(framed(metadata_request())))
    result = barnabas("wire", "decode", "--direction", "request", path)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "api": "Metadata",
        "version": 12,
        "position": 4,
        "size": len(metadata_request()),
        "header": {"requestApiKey": 3, "requestApiVersion": 12, "correlationId": 7, "clientId": "cli"},
        "body": {
            "topics": [
                {"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": "größe", "unknownTags": [[9, "0102"]]},
            ],
            "allowAutoTopicCreation": True,
            "includeTopicAuthorizedOperations": False,
        },
    }
    assert "größe" in result.stdout


def test_readable_or_one_line(barnabas: Barnabas) -> None:
    frame = framed(metadata_request())
    assert barnabas("wire", "decode", "--direction", "request", stdin=frame).stdout.count("\n") > 10
    assert (
        barnabas("wire", "decode", "--direction", "request", "--compact", stdin=frame).stdout.count("\n") == 1
    )


@pytest.mark.parametrize("form", ["auto", "payload"])
def test_a_request_without_its_size(barnabas: Barnabas, form: str) -> None:
    result = barnabas(
        "wire", "decode", "--direction", "request", "--form", form, stdin=bytes(metadata_request())
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout)["body"]["topics"][0]["name"] == "größe"


@pytest.mark.parametrize("api", ["Metadata", "metadata", "3"])
def test_a_response_with_its_api_and_version(barnabas: Barnabas, api: str) -> None:
    body = MetadataResponse(cluster_id="abc")
    flags = ("--direction", "response", "--api", api, "--version", "9")
    for form, data in (
        ("auto", framed(encode_response(METADATA, 9, 5, body))),
        ("auto", bytes(encode_response(METADATA, 9, 5, body))),
        ("payload", bytes(encode_response(METADATA, 9, 5, body))),
    ):
        result = barnabas("wire", "decode", *flags, "--form", form, stdin=data)
        assert result.exit_code == 0
        document = json.loads(result.stdout)
        assert document["header"] == {"correlationId": 5}
        assert document["body"]["clusterId"] == "abc"
    result = barnabas("wire", "decode", *flags, stdin=encode(body, 9))
    assert json.loads(result.stdout)["clusterId"] == "abc"


def test_a_response_that_only_one_api_can_give(barnabas: Barnabas) -> None:
    brokers = [MetadataResponseBroker(node_id=1, host="localhost", port=9092)]
    frame = framed(encode_response(METADATA, 11, 5, MetadataResponse(brokers=brokers)))
    result = barnabas("wire", "decode", "--direction", "response", stdin=frame)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["api"], document["guessed"]) == ("Metadata", True)
    assert document["body"]["brokers"][0]["host"] == "localhost"


def test_a_body_of_zeros_is_not_taken_for_empty_frames(barnabas: Barnabas) -> None:
    result = barnabas(
        *("wire", "decode", "--direction", "response", "--api", "EndTxn", "--version", "0"), stdin=bytes(6)
    )
    assert json.loads(result.stdout) == {"throttleTimeMs": 0, "errorCode": 0}


def test_every_golden_message_by_its_name(barnabas: Barnabas) -> None:
    for golden in golden_messages()[::40]:
        result = barnabas(
            *("wire", "decode", "--message", golden.message.lower(), "--version", str(golden.version)),
            *("--encoding", "hex", "--compact"),
            stdin=golden.data.hex().encode(),
        )
        assert without_unknown_tags(json.loads(result.stdout)) == golden.json


def test_a_refused_version_is_answered_in_version_0(barnabas: Barnabas, tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    requests.write_bytes(framed(b"\x00\x12\x00\x63\x00\x00\x00\x01\x00\x02id\x00"))
    answer = framed(encode_response(API_VERSIONS, 0, 1, ApiVersionsResponse(error_code=35)))
    result = barnabas("wire", "decode", "--direction", "response", "--requests", requests, stdin=answer)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["version"], document["body"]["errorCode"]) == (0, 35)


def test_records_are_shown(barnabas: Barnabas) -> None:
    builder = BatchBuilder(compression=CompressionType.ZSTD, base_offset=Offset(5), producer_id=ProducerId(9))
    builder.append(timestamp=TimestampMs(1000), key=b"k", value=None, headers=(("h", b"\x01"),))
    batch = builder.build()
    partitions = [
        PartitionProduceData(index=index, records=records)
        for index, records in enumerate((batch + batch[:30], b"x" * 80, None))
    ]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    flags = ("--message", "ProduceRequest", "--version", "9")
    form = json.loads(barnabas("wire", "decode", *flags, "--records", stdin=encode(request, 9)).stdout)
    found, broken, null = (partition["records"] for partition in form["topicData"][0]["partitionData"])
    assert found == [
        {
            "baseOffset": 5,
            "sizeInBytes": len(batch),
            "magic": 2,
            "partitionLeaderEpoch": -1,
            "compression": "zstd",
            "timestampType": "CreateTime",
            "isTransactional": False,
            "isControl": False,
            "producerId": 9,
            "producerEpoch": -1,
            "baseSequence": -1,
            "records": [
                {"offset": 5, "timestamp": 1000, "key": "6b", "value": None, "headers": [["h", "01"]]}
            ],
        }
    ]
    assert list(broken[0]) == ["fault"]
    assert null is None
    plain = json.loads(barnabas("wire", "decode", *flags, stdin=encode(request, 9)).stdout)
    assert plain["topicData"][0]["partitionData"][1]["records"] == base64.b64encode(b"x" * 80).decode()


def test_what_does_not_decode_is_named_and_the_rest_is_printed(barnabas: Barnabas) -> None:
    broken = metadata_request(8)[:-1]
    stream = (
        framed(metadata_request(7)) + framed(broken) + framed(metadata_request(9)) + b"\x00\x00\x01\x00rest"
    )
    result = barnabas("wire", "decode", "--direction", "request", "--compact", stdin=stream)
    assert result.exit_code == 1
    found = documents(result.stdout)
    assert [document["header"]["correlationId"] for document in found] == [7, 9]
    start = len(framed(metadata_request(7)))
    assert f"request at byte {start + 4}: MetadataRequest v12: " in result.stderr
    assert "a frame of 256 bytes is announced, 4 bytes follow" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "exit_code", "advice"),
    [
        ("", b"00", 2, "Add --direction request or response, or --message NAME"),
        ("--direction request", b"", 1, "the input is empty"),
        ("--direction request", b"\x7f\xff\xff\xffabc", 1, "add --form payload"),
        ("--direction request", b"abc", 1, "ends within the size"),
        ("--direction request --encoding hex", b"0", 1, "not hex"),
        ("--direction request --api Fetch", b"00", 2, "--api and --version go together"),
        ("--direction request --form body", b"00", 2, "add --api and --version"),
        ("--direction response", framed(bytes(10)), 1, "could be of LeaderAndIsr, StopReplica, "),
        (
            "--direction response",
            framed(b"\xff" * 50),
            1,
            "not a response of any API: add --api and --version",
        ),
        ("--direction response --api Fetsh --version 1", b"00", 2, "did you mean Fetch"),
        ("--direction response --api 1000 --version 1", b"00", 2, "`barnabas wire apis` lists them"),
        ("--direction response --api Fetch --version 99", b"00", 2, "Fetch has versions 0-18, not 99"),
        ("--direction response --api EndTxn --version 0", b"000000000000ff", 1, "1 bytes left over"),
        ("--message FetchRequest", b"00", 2, "add --version N"),
        ("--message FetchRequest --version 1 --direction request", b"00", 2, "only --version goes with it"),
        ("--message FetchReqest --version 1", b"00", 2, "did you mean FetchRequest"),
        ("--message FetchRequest --version 99", b"00", 1, "FetchRequest has no version 99, only 0-18"),
        ("--message FetchRequest --version 12", b"00", 1, "FetchRequest v12: field replicaId at byte 0"),
        ("--direction request /nowhere", b"", 2, "No such file"),
    ],
)
def test_advice(barnabas: Barnabas, arguments: str, stdin: bytes, exit_code: int, advice: str) -> None:
    result = barnabas("wire", "decode", *arguments.split(), stdin=stdin)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert advice in " ".join(result.stderr.split())


def test_requests_belong_to_responses(barnabas: Barnabas, tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_bytes(framed(metadata_request()))
    result = barnabas("wire", "decode", "--direction", "request", "--requests", path, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--requests goes with --direction response" in result.stderr
    stranger = framed(encode_response(METADATA, 9, 1234, MetadataResponse()))
    result = barnabas("wire", "decode", "--direction", "response", "--requests", path, stdin=stranger)
    assert result.exit_code == 1
    assert "no request with correlation id 1234" in result.stderr


def test_the_table_of_apis(barnabas: Barnabas) -> None:
    lines = barnabas("wire", "apis").stdout.splitlines()
    assert len(lines) == 1 + len(APIS)
    assert lines[0].split() == ["key", "name", "versions", "flexible"]
    assert lines[1].split() == ["0", "Produce", "0-13", "9+"]
    assert lines[18].split() == ["17", "SaslHandshake", "0-1", "never"]
    listed = json.loads(barnabas("wire", "apis", "--json").stdout)
    assert [(row["key"], row["name"], row["last_version"]) for row in listed] == [
        (api.key, api.name, api.last_version) for api in APIS
    ]
