from __future__ import annotations

import pytest

from barnabas.errors import InvalidRequest, UnsupportedVersion
from barnabas.protocol.apis import APIS, api_for_key, api_for_name
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.api_versions_response import ApiVersionsResponse
from barnabas.protocol.requests import (
    UnsupportedRequest,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from barnabas.protocol.schema import VersionRange, load_schema, message_names


def test_the_table_is_what_the_schemas_say() -> None:
    assert [api.key for api in APIS] == list(range(93))
    for api in APIS:
        for name, message_type in (
            (api.request_name, api.request_class()),
            (api.response_name, api.response_class()),
        ):
            schema = load_schema(name)
            assert message_type.__name__ == name
            assert schema.api_key == api.key
            assert schema.versions == VersionRange(api.first_version, api.last_version)
            for version in schema.versions:
                assert schema.is_flexible(version) == api.is_flexible(version)


def test_every_request_is_in_the_table_but_the_one_that_was_renamed() -> None:
    requests = {name for name in message_names() if load_schema(name).type == "request"}
    assert requests - {api.request_name for api in APIS} == {"ListClientMetricsResourcesRequest"}


@pytest.mark.parametrize(
    ("name", "version", "request_header", "response_header"),
    [
        ("Fetch", 11, 1, 0),
        ("Fetch", 12, 2, 1),
        ("ApiVersions", 2, 1, 0),
        ("ApiVersions", 3, 2, 0),
        ("ControlledShutdown", 0, 0, 0),
        ("ControlledShutdown", 1, 1, 0),
        ("ControlledShutdown", 3, 2, 1),
        ("SaslHandshake", 1, 1, 0),
    ],
)
def test_header_versions(name: str, version: int, request_header: int, response_header: int) -> None:
    api = api_for_name(name)
    assert api.request_header_version(version) == request_header
    assert api.response_header_version(version) == response_header


def test_requests_and_responses_travel_in_every_version() -> None:
    for api in APIS:
        for version in range(api.first_version, api.last_version + 1):
            body = api.request_class()()
            frame = encode_request(api, version, 77, "me", body)
            request = decode_request(frame)
            assert (request.api, request.version, request.body) == (api, version, body)
            assert request.header.correlation_id == 77
            expected_client = "" if api.request_header_version(version) == 0 else "me"
            assert request.header.client_id == expected_client

            answer = api.response_class()()
            response = decode_response(api, version, encode_response(api, version, 77, answer))
            assert (response.header.correlation_id, response.body) == (77, answer)


def test_a_request_in_bytes() -> None:
    api = api_for_key(18)
    body = ApiVersionsRequest(client_software_name="b", client_software_version="1")
    frame = encode_request(api, 3, 1, None, body)
    assert frame == bytes.fromhex("0012 0003 00000001 ffff 00") + b"\x02b\x021\0"
    assert decode_request(frame).header.client_id is None


def test_an_answer_about_versions_has_the_oldest_header() -> None:
    frame = encode_response(api_for_key(18), 3, 9, ApiVersionsResponse(error_code=35))
    assert frame.startswith(b"\0\0\0\x09" + b"\0\x23")


def test_an_unknown_key_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="unknown API key 93"):
        decode_request(bytes.fromhex("005d 0000 00000001 ffff"))
    with pytest.raises(InvalidRequest, match="unknown API key -1"):
        api_for_key(-1)
    with pytest.raises(KeyError):
        api_for_name("fetch")


def test_an_unknown_version_still_has_a_header_to_answer_to() -> None:
    with pytest.raises(UnsupportedRequest, match="ApiVersions has no version 99, only 0-4") as caught:
        decode_request(bytes.fromhex("0012 0063 0000002a 0002") + b"me" + b"\0whatever")
    assert caught.value.header.correlation_id == 42
    assert caught.value.header.client_id == "me"
    assert isinstance(caught.value, UnsupportedVersion)


def test_cut_frames_are_refused() -> None:
    frame = encode_request(api_for_name("Fetch"), 12, 1, "me", api_for_name("Fetch").request_class()())
    for size_bytes in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_request(frame[:size_bytes])
    with pytest.raises(DecodeError, match="1 bytes left over"):
        decode_request(frame + b"\0")
    api, _, position = decode_request_header(frame)
    assert (api.name, position) == ("Fetch", 13)
