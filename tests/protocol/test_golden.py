from __future__ import annotations

import random

import pytest

from barnabas.protocol.codec import decode, decode_prefix, encode
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.json_form import from_json, to_json
from barnabas.protocol.messages import message_class
from barnabas.protocol.schema import load_schema, message_names
from tests.protocol.golden import GoldenMessage, golden_messages


def test_the_corpus_has_every_version_of_every_message() -> None:
    every_version = {(name, version) for name in message_names() for version in load_schema(name).versions}
    in_corpus = {(golden.message, golden.version) for golden in golden_messages()}
    assert in_corpus == every_version
    assert len(golden_messages()) == 1702


def test_bytes_decode_to_kafkas_json_and_encode_to_the_same_bytes() -> None:
    for golden in golden_messages():
        message = decode(message_class(golden.message), golden.data, golden.version)
        assert to_json(message, golden.version) == golden.json, str(golden)
        assert message.unknown_tagged_fields == golden.unknown_tagged_fields, str(golden)
        assert encode(message, golden.version) == golden.data, str(golden)


def test_kafkas_json_encodes_to_its_bytes() -> None:
    for golden in golden_messages():
        message = from_json(message_class(golden.message), golden.json, golden.version)
        message.unknown_tagged_fields = golden.unknown_tagged_fields
        assert encode(message, golden.version) == golden.data, str(golden)


def test_any_buffer_decodes_at_any_position() -> None:
    for golden in golden_messages():
        message_type = message_class(golden.message)
        expected = decode(message_type, golden.data, golden.version)
        for buffer in (bytearray(golden.data), memoryview(golden.data)):
            assert decode(message_type, buffer, golden.version) == expected, str(golden)
        padded = b"\xff\xff\xff" + golden.data
        assert decode(message_type, padded, golden.version, 3) == expected, str(golden)
        found, end = decode_prefix(message_type, padded, golden.version, 3)
        assert (found, end) == (expected, len(padded)), str(golden)


def assert_cut_is_refused(golden: GoldenMessage, size_bytes: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(message_class(golden.message), golden.data[:size_bytes], golden.version)
    error = caught.value
    assert (error.message, error.version) == (golden.message, golden.version)
    assert 0 <= error.position <= size_bytes


def test_some_cuts_of_every_message_are_refused() -> None:
    choices = random.Random(1)
    for golden in golden_messages():
        size_bytes = len(golden.data)
        for cut in {choices.randrange(size_bytes) for _ in range(4)} if size_bytes else ():
            assert_cut_is_refused(golden, cut)


@pytest.mark.slow
def test_every_cut_of_every_message_is_refused() -> None:
    for golden in golden_messages():
        for cut in range(len(golden.data)):
            assert_cut_is_refused(golden, cut)


def test_a_byte_too_many_is_refused_at_its_position() -> None:
    for golden in golden_messages():
        with pytest.raises(DecodeError) as caught:
            decode(message_class(golden.message), golden.data + b"\0", golden.version)
        assert caught.value.position == len(golden.data), str(golden)
        assert caught.value.reason == "1 bytes left over", str(golden)
