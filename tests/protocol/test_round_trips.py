"""Random messages of every version survive the bytes and the JSON form."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.json_form import from_json, to_json
from barnabas.protocol.messages import message_class
from barnabas.protocol.schema import Field, MessageSchema, StructSchema, load_schema, message_names
from tests.sampling import cases

_MESSAGE_VERSIONS: Final = [
    (name, version) for name in message_names() for version in load_schema(name).versions
]

_VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    # Long enough for a length of two bytes now and then.
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("ß" * 70),
    "bytes": st.binary(max_size=20) | st.just(b"b" * 130),
    "records": st.binary(max_size=20) | st.just(b"r" * 20_000),
}


@functools.cache
def messages(name: str, version: int) -> st.SearchStrategy[Any]:
    schema = load_schema(name)
    return structs(schema, schema, version)


def structs(message: MessageSchema, struct: StructSchema, version: int) -> st.SearchStrategy[Any]:
    module = sys.modules[message_class(message.name).__module__]
    fields = {
        field.python_name: values(message, field, version)
        for field in struct.fields
        if field.is_present(version)
    }
    if message.is_flexible(version):
        # Above all tags that schemas use.
        tagged = st.dictionaries(st.integers(100, 2**31 - 1), st.binary(max_size=5), max_size=2)
        fields["unknown_tagged_fields"] = st.just(()) | tagged.map(lambda tags: tuple(sorted(tags.items())))
    return st.builds(getattr(module, struct.name), **fields)


def values(message: MessageSchema, field: Field, version: int) -> st.SearchStrategy[Any]:
    value = structs(message, field.struct, version) if field.struct else _VALUES[field.kind]
    if field.is_array:
        value = st.lists(value, max_size=2)
    return st.none() | value if field.is_nullable(version) else value


@settings(
    max_examples=cases(250, fast=50),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.sampled_from(_MESSAGE_VERSIONS), st.data())
def test_random_messages_survive(message_version: tuple[str, int], data: st.DataObject) -> None:
    name, version = message_version
    message = data.draw(messages(name, version))
    encoded = encode(message, version)
    decoded = decode(type(message), encoded, version)
    assert decoded == message
    assert encode(decoded, version) == encoded

    text = json.dumps(to_json(message, version))
    from_text = from_json(type(message), json.loads(text), version)
    assert to_json(from_text, version) == json.loads(text)
    # Unknown tagged fields have no JSON form.
    if not load_schema(name).is_flexible(version):
        assert from_text == message
