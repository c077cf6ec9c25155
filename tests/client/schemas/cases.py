"""Values that our serializers and Confluent's write with the same schemas."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any, NamedTuple

from tests.client.schemas.messages import Address, Line, Order, Other

TOPIC = "orders"
RECORD = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": ["null", "string"], "default": None},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        ],
    }
)
ORDER = {
    "id": -7,
    "customer": "ann",
    "price": decimal.Decimal("12.50"),
    "at": datetime.datetime(2026, 11, 18, 6, 0, tzinfo=datetime.UTC),
    "key": uuid.UUID(int=77),
    "tags": ["a", "ü"],
    "kind": "OLD",
}
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["id"],
    }
)


class Case(NamedTuple):
    name: str
    kind: str
    schema: Any
    value: Any
    strategy: str = "topic"
    field: str = "value"


CASES = [
    Case("record", "avro", RECORD, ORDER),
    Case(
        "record with defaults",
        "avro",
        RECORD,
        {k: v for k, v in ORDER.items() if k not in ("tags", "customer")},
    ),
    Case("record as a key", "avro", RECORD, ORDER, field="key"),
    Case("record subject", "avro", RECORD, ORDER, strategy="record"),
    Case("topic and record subject", "avro", RECORD, ORDER, strategy="topic_record"),
    Case("a text", "avro", '"string"', "grün"),
    Case("a number", "avro", '{"type": "int"}', 2**31 - 1),
    Case("bytes alone", "avro", '"bytes"', b"\x00\x01raw"),
    Case("a union", "avro", '["null", "long", "string"]', "x"),
    Case("an object", "json", JSON_SCHEMA, {"id": 1, "name": "grün", "more": [1.5, None, True]}),
    Case("an object by its title", "json", JSON_SCHEMA, {"id": 1}, strategy="record"),
    Case("a first message", "protobuf", Address, Address(street="Hill 1")),
    Case("an empty second message", "protobuf", Other, Other()),
    Case("a message with imports", "protobuf", Order, Order(id=-1, to=Address(street="Hill 1"))),
    Case("a nested message", "protobuf", Line, Line(item="pear"), strategy="topic_record"),
]
