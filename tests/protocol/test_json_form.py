from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.protocol.errors import FieldNotInVersion, InvalidValue, UnsupportedMessageVersion
from barnabas.protocol.json_form import from_json, to_json, uuid_from_text, uuid_to_text
from barnabas.protocol.messages.client_quota_record import ClientQuotaRecord
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest


def test_the_form_is_kafkas() -> None:
    partitions = [
        PartitionProduceData(index=1, records=memoryview(b"\xff\xfe")),
        PartitionProduceData(index=2, records=None),
    ]
    topic = TopicProduceData(topic_id=bytes(range(240, 256)), partition_data=partitions)
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])
    json = {
        "transactionalId": None,
        "acks": -1,
        "timeoutMs": 5,
        "topicData": [
            {
                "topicId": "8PHy8_T19vf4-fr7_P3-_w",
                "partitionData": [{"index": 1, "records": "//4="}, {"index": 2, "records": None}],
            }
        ],
    }
    assert to_json(request, 13) == json
    assert from_json(ProduceRequest, json, 13) == request


def test_tagged_fields_at_their_default_are_left_out() -> None:
    json = to_json(FetchRequest(), 15)
    assert "clusterId" not in json
    assert "replicaState" not in json
    assert from_json(FetchRequest, json, 15) == FetchRequest()
    assert to_json(FetchRequest(cluster_id="c"), 15)["clusterId"] == "c"


def test_a_field_that_the_version_does_not_have() -> None:
    request = FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=4)])])
    with pytest.raises(FieldNotInVersion) as caught:
        to_json(request, 11)
    assert caught.value.field == "topics[0].partitions[0].lastFetchedEpoch"
    json = to_json(FetchRequest(), 4) | {"rackId": "ignored by this version"}
    assert from_json(FetchRequest, json, 4).rack_id == "ignored by this version"


@pytest.mark.parametrize(
    ("json", "field", "reason"),
    [
        ([], "", "an object wanted, not list"),
        ({}, "topics", "missing"),
        ({"topics": {}}, "topics", "a list wanted, not dict"),
        ({"topics": [{"name": None}]}, "topics[0].name", "null, which this field cannot be"),
        ({"topics": [{"name": 5}]}, "topics[0].name", "a string wanted, not int"),
        ({"topics": [], "allowAutoTopicCreation": 1}, "allowAutoTopicCreation", "a boolean wanted, not int"),
        ({"topics": [], "allowAutoTopicCreation": True, "x": 1}, "", "there is no field 'x'"),
    ],
)
def test_json_that_is_not_the_message(json: Any, field: str, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        from_json(MetadataRequest, json, 4)
    assert (caught.value.field, caught.value.reason) == (field, reason)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.0, True, "1", []])
def test_integers_are_of_their_type(value: Any) -> None:
    json = to_json(FetchRequest(), 4) | {"maxWaitMs": value}
    with pytest.raises(InvalidValue, match="maxWaitMs"):
        from_json(FetchRequest, json, 4)


@pytest.mark.parametrize("text", ["a", "a*==", "é"])
def test_base64_that_is_none(text: str) -> None:
    with pytest.raises(InvalidValue, match="authBytes"):
        from_json(SaslAuthenticateRequest, {"authBytes": text}, 1)


@pytest.mark.parametrize("value", [0.0, -1.5, 1e308, math.inf, -math.inf])
def test_floats(value: float) -> None:
    record = ClientQuotaRecord(key="k", value=value)
    assert from_json(ClientQuotaRecord, to_json(record, 0), 0) == record
    nan = to_json(ClientQuotaRecord(value=math.nan), 0)
    assert nan["value"] == "NaN"
    assert math.isnan(from_json(ClientQuotaRecord, nan, 0).value)


@pytest.mark.parametrize("value", [10**400, "1.0", True, None])
def test_floats_that_are_none(value: Any) -> None:
    json = to_json(ClientQuotaRecord(), 0) | {"value": value}
    with pytest.raises(InvalidValue, match="value"):
        from_json(ClientQuotaRecord, json, 0)


def test_uuids_are_text_in_base64url() -> None:
    uuid = bytes(range(16))
    assert uuid_to_text(uuid) == "AAECAwQFBgcICQoLDA0ODw"
    assert uuid_from_text("AAECAwQFBgcICQoLDA0ODw") == uuid
    assert uuid_from_text("AAECAwQFBgcICQoLDA0ODw==") == uuid
    for text in ("", "AAEC", "!" * 22, "AAECAwQFBgcICQoLDA0ODxAR"):
        with pytest.raises(ValueError):
            uuid_from_text(text)


def test_a_version_that_does_not_exist() -> None:
    with pytest.raises(UnsupportedMessageVersion):
        to_json(SaslAuthenticateRequest(), 3)
    with pytest.raises(UnsupportedMessageVersion):
        from_json(SaslAuthenticateRequest, {}, 3)
