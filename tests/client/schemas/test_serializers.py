"""Serializers against Confluent's, on a registry that speaks HTTP."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

import barnabas
from barnabas.client.failures import SerializationError
from barnabas.client.schemas.avro import AvroDeserializer, AvroSerializer
from barnabas.client.schemas.decoding import SchemaDecoder
from barnabas.client.schemas.failures import NoSchemaHeader, SchemaNotFound
from barnabas.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from barnabas.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from barnabas.client.schemas.registry import JSON, Schema, SchemaReference, SchemaRegistry
from barnabas.client.schemas.serializers import SchemaSerializer
from barnabas.client.schemas.wire import message_indexes, read_message_indexes
from barnabas.errors import InvalidConfig
from tests.client.schemas.cases import CASES, JSON_SCHEMA, ORDER, RECORD, TOPIC, Case
from tests.client.schemas.confluent import RECORDED, confluent_bytes
from tests.client.schemas.messages import Address, Order
from tests.client.schemas.registry_server import RegistryServer
from tests.client.topics import made
from tests.clients.broker_process import BrokerProcess

SERIALIZERS: dict[str, type[SchemaSerializer]] = {
    "avro": AvroSerializer,
    "json": JsonSchemaSerializer,
    "protobuf": ProtobufSerializer,
}
WAIT_MS = 60_000


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)


def written(registry: SchemaRegistry, case: Case) -> bytes:
    make: Any = SERIALIZERS[case.kind]
    serializer = make(registry, case.schema, subject_strategy=case.strategy)
    data = serializer.serialize(TOPIC, case.value, case.field)
    assert isinstance(data, bytes)
    return data


def read(registry: SchemaRegistry, case: Case, data: bytes) -> Any:
    if case.kind == "avro":
        return AvroDeserializer(registry).deserialize(TOPIC, data)
    if case.kind == "json":
        return JsonSchemaDeserializer(registry).deserialize(TOPIC, data)
    return ProtobufDeserializer(registry, case.schema).deserialize(TOPIC, data)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_bytes_and_subjects_are_those_of_confluent(
    server: RegistryServer, registry: SchemaRegistry, case: Case
) -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))[case.name]
    data = written(registry, case)
    assert data.hex() == recorded["bytes"]
    assert sorted(registry.subjects()) == recorded["subjects"]
    value = read(registry, case, data)
    assert value == case.value or all(value[field] == each for field, each in case.value.items())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.skipif(
    any(importlib.util.find_spec(each) is None for each in ("httpx2", "authlib", "cachetools", "certifi")),
    reason="needs confluent-kafka[avro,json,protobuf]; the recorded bytes are compared without it",
)
def test_confluent_and_ours_share_a_registry(
    server: RegistryServer, registry: SchemaRegistry, case: Case
) -> None:
    theirs = confluent_bytes(server.url, case)
    assert written(registry, case) == theirs
    assert SchemaDecoder(registry).decode(theirs).schema_id == theirs[4]


def test_a_schema_is_asked_for_once(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, RECORD)
    deserializer = AvroDeserializer(SchemaRegistry(server.url))
    for _ in range(3):
        assert deserializer.deserialize(TOPIC, serializer.serialize(TOPIC, ORDER)) == ORDER
    assert server.requests == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_without_registering_the_schema_must_be_there(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, RECORD, auto_register=False)
    with pytest.raises(SchemaNotFound, match="orders-value"):
        serializer.serialize(TOPIC, ORDER)
    registry.register("other", Schema('"string"'))
    expected = registry.register("orders-value", Schema(RECORD))
    assert serializer.prepare(TOPIC) == expected == 2


def test_the_latest_version_is_written(registry: SchemaRegistry) -> None:
    registry.register("orders-value", Schema('{"type":"int"}'))
    registry.register("orders-value", Schema('{"type":"string"}'))
    serializer = AvroSerializer(registry, use_latest_version=True)
    assert serializer.serialize(TOPIC, "a") == b"\x00\x00\x00\x00\x02\x02a"
    assert AvroSerializer(registry, schema_id=1).serialize(TOPIC, 1) == b"\x00\x00\x00\x00\x01\x02"


def test_a_reader_has_its_own_schema(registry: SchemaRegistry) -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    reader = {**writer, "fields": [*writer["fields"], {"name": "b", "type": "string", "default": "new"}]}
    data = AvroSerializer(registry, json.dumps(writer)).serialize(TOPIC, {"a": 1})
    assert AvroDeserializer(registry, json.dumps(reader)).deserialize(TOPIC, data) == {"a": 1, "b": "new"}


def test_schemas_refer_to_others(registry: SchemaRegistry) -> None:
    """A diamond: both fields use a record that the third schema declares."""
    point = (
        '{"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}'
    )
    registry.register("point", Schema(point))
    line = '{"type": "record", "name": "Line", "namespace": "geo", "fields": [{"name": "from", "type": "geo.Point"}]}'
    to_point = SchemaReference("geo.Point", "point", 1)
    registry.register("line", Schema(line, references=(to_point,)))
    text = (
        '{"type": "record", "name": "Map", "fields": ['
        '{"name": "line", "type": "geo.Line"}, {"name": "at", "type": "geo.Point"}]}'
    )
    schema = Schema(text, references=(SchemaReference("geo.Line", "line", 1), to_point))
    value = {"line": {"from": {"x": 1}}, "at": {"x": 2}}
    data = AvroSerializer(registry, schema).serialize(TOPIC, value)
    assert AvroDeserializer(registry).deserialize(TOPIC, data) == value

    registry.register("name.json", Schema('{"type": "string", "minLength": 2}', JSON))
    person = Schema(
        '{"title": "P", "properties": {"name": {"$ref": "name.json"}}}',
        JSON,
        (SchemaReference("name.json", "name.json", 1),),
    )
    serializer = JsonSchemaSerializer(registry, person)
    assert serializer.serialize(TOPIC, {"name": "ann"}) is not None
    with pytest.raises(SerializationError, match=r"\$\.name.*too short"):
        serializer.serialize(TOPIC, {"name": "a"})


def test_tools_decode_every_kind(registry: SchemaRegistry) -> None:
    decoder = SchemaDecoder(registry)
    order = decoder.decode(AvroSerializer(registry, RECORD).serialize(TOPIC, ORDER) or b"")
    assert (order.schema_type, order.name, order.value["customer"]) == ("AVRO", "shop.Order", "ann")
    assert json.loads(order.to_json())["at"] == "2026-11-18T06:00:00+00:00"
    data = JsonSchemaSerializer(registry, JSON_SCHEMA).serialize(TOPIC, {"id": 1}, "key")
    assert decoder.decode(data or b"").to_json() == '{"id": 1}'
    message = Order(id=5, to=Address(street="Hill"))
    message.at.seconds = 3
    shown = decoder.decode(ProtobufSerializer(registry, Order).serialize("p", message) or b"")
    assert shown.name == "shop.Order"
    assert shown.value == {"id": "5", "to": {"street": "Hill"}, "at": "1970-01-01T00:00:03Z"}
    with pytest.raises(NoSchemaHeader, match="not written with a schema registry"):
        decoder.decode(b"plain text")
    with pytest.raises(NoSchemaHeader, match="too few"):
        decoder.decode(b"\x00\x00")
    with pytest.raises(SchemaNotFound, match="Schema 99 not found"):
        decoder.decode(b"\x00\x00\x00\x00\x63rest")


def test_a_message_has_the_class_of_its_writers_schema(registry: SchemaRegistry) -> None:
    data = ProtobufSerializer(registry, Order).serialize(TOPIC, Order(id=5))
    made_of_schema: Any = ProtobufDeserializer(registry).deserialize(TOPIC, data)
    assert (made_of_schema.DESCRIPTOR.full_name, made_of_schema.id) == ("shop.Order", 5)


@pytest.mark.parametrize(
    ("serializer", "value", "words"),
    [
        (lambda r: AvroSerializer(r, RECORD), {"id": "x"}, "does not fit the Avro schema 1"),
        (lambda r: AvroSerializer(r, RECORD, strict=True), {**ORDER, "extra": 1}, "extra"),
        (lambda r: JsonSchemaSerializer(r, JSON_SCHEMA), {"name": "x"}, "'id' is a required property"),
        (
            lambda r: JsonSchemaSerializer(r, JSON_SCHEMA),
            {"id": 1, "x": float("nan")},
            "cannot be written as JSON",
        ),
        (lambda r: ProtobufSerializer(r, Order), Address(), "of type Address, and a Order is needed"),
        (
            lambda r: AvroSerializer(r, '"bytes"'),
            3,
            "does not fit the Avro schema 1: it takes bytes, and not int",
        ),
        (lambda r: AvroSerializer(r, {"type": "bytes"}), [3], "it takes bytes, and not list"),
        (
            lambda r: AvroSerializer(r, '["int", "string"]', subject_strategy="record"),
            1,
            'use subject_strategy="topic"',
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    registry: SchemaRegistry, serializer: Any, value: Any, words: str
) -> None:
    with pytest.raises(SerializationError, match=words):
        serializer(registry).serialize(TOPIC, value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda r: AvroSerializer(r, '{"type": "recrd"}'), "not an Avro schema"),
        (lambda r: AvroSerializer(r, "  "), "empty"),
        (lambda r: AvroSerializer(r), "needs a schema, or use_latest_version"),
        (lambda r: AvroSerializer(cast(Any, "http://localhost"), RECORD), "needs a SchemaRegistry"),
        (
            lambda r: AvroDeserializer(cast(Any, "http://localhost:8081")),
            r"AvroDeserializer needs a SchemaRegistry.*SchemaRegistry\('http://localhost:8081'\)",
        ),
        (lambda r: AvroSerializer(cast(Any, RECORD), cast(Any, r)), "AvroSerializer needs a SchemaRegistry"),
        (lambda r: JsonSchemaDeserializer(cast(Any, None)), "JsonSchemaDeserializer needs a SchemaRegistry"),
        (lambda r: ProtobufDeserializer(cast(Any, {})), "ProtobufDeserializer needs a SchemaRegistry"),
        (lambda r: ProtobufDeserializer(r, cast(Any, dict)), "a class that protoc has made"),
        (lambda r: SchemaDecoder(cast(Any, "http://x")), "SchemaDecoder needs a SchemaRegistry"),
        (lambda r: AvroSerializer(r, cast(Any, 5)), "a schema is JSON text, a dict or a Schema, .*and not 5"),
        (lambda r: AvroSerializer(r, {"type": "string", "x": {1}}), "has no form in JSON"),
        (lambda r: JsonSchemaSerializer(r, cast(Any, 5)), "a schema is JSON text, a dict or a Schema"),
        (lambda r: AvroSerializer(r, RECORD, subject_strategy="topics"), "use topic, record, topic_record"),
        (lambda r: AvroSerializer(r, RECORD, field="both"), "use key or value"),
        (lambda r: JsonSchemaSerializer(r, "{"), "is not JSON"),
        (lambda r: JsonSchemaSerializer(r, '{"type": "objekt"}'), "not a JSON Schema, at"),
        (lambda r: ProtobufSerializer(r, dict), "a class that protoc has made"),
        (
            lambda r: barnabas.Producer(bootstrap_servers="localhost:1", value_serializer=AvroSerializer),
            "not the class",
        ),
    ],
)
def test_a_wrong_argument_is_named_at_once(registry: SchemaRegistry, make: Any, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        make(registry)


@pytest.mark.parametrize(
    ("make", "text", "value"),
    [
        (AvroSerializer, RECORD, ORDER),
        (AvroSerializer, '["null", "string"]', "text"),
        (AvroSerializer, '{"type": "bytes"}', bytearray(b"\x00\x01")),
        (JsonSchemaSerializer, JSON_SCHEMA, {"id": 1, "name": "x"}),
    ],
)
def test_a_schema_may_be_a_tree(registry: SchemaRegistry, make: Any, text: str, value: Any) -> None:
    written = make(registry, text).serialize(TOPIC, value)
    assert make(registry, json.loads(text)).serialize("others", value)[5:] == written[5:]
    reader: Any = AvroDeserializer if make is AvroSerializer else JsonSchemaDeserializer
    assert reader(registry, json.loads(text)).deserialize(TOPIC, written) == value


def test_a_registry_names_wrong_arguments() -> None:
    wrong: Any = SchemaRegistry
    with pytest.raises(TypeError, match=r"has no argument timeout: use timeout_ms, in milliseconds"):
        wrong("http://localhost:1", timeout=5)
    with pytest.raises(TypeError, match="takes timeout_ms as a number of milliseconds, and not '5'"):
        wrong("http://localhost:1", timeout_ms="5")
    with pytest.raises(InvalidConfig, match="has an address such as"):
        wrong({"url": "http://localhost:1"})


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x01\xff\xff\xff"])
def test_bytes_that_do_not_fit_their_schema_raise(registry: SchemaRegistry, data: bytes) -> None:
    registry.register("orders-value", Schema(RECORD))
    with pytest.raises(SerializationError, match="no value of the Avro schema 1"):
        AvroDeserializer(registry).deserialize(TOPIC, data)


def test_message_indexes_are_bounded() -> None:
    for indexes in [(0,), (1,), (0, 0), (2, 1, 300)]:
        packed = message_indexes(indexes)
        assert read_message_indexes(packed + b"rest", 0) == (indexes, len(packed))
    for broken in (b"", b"\x02", b"\xff\xff\xff\xff\xff\xff", b"\xfe\x7f", b"\x01"):
        with pytest.raises(SerializationError):
            read_message_indexes(broken, 0)


def test_producer_and_consumer_use_them(broker: BrokerProcess, topic: str, registry: SchemaRegistry) -> None:
    made(broker, topic)
    serializer = AvroSerializer(registry, RECORD)
    with barnabas.Producer(
        bootstrap_servers=broker.address,
        key_serializer=AvroSerializer(registry, '"string"'),
        value_serializer=serializer,
    ) as producer:
        producer.send(topic, ORDER, key="ann").result(WAIT_MS / 1000)
        with pytest.raises(SerializationError, match="value_serializer failed for topic"):
            producer.send(topic, {"id": "text"})
    assert registry.subjects() == [f"{topic}-value", f"{topic}-key"]
    with barnabas.Consumer(
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        key_deserializer=AvroDeserializer(registry),
        value_deserializer=AvroDeserializer(registry),
    ) as consumer:
        consumer.assign([(topic, 0)])
        (record,) = consumer.poll(WAIT_MS)
        assert (record.key, record.value) == ("ann", ORDER)
