from __future__ import annotations

import pytest

from barnabas.protocol.schema import NO_VERSIONS, VersionRange, load_schema, message_names, snake_case


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", [0, 32767], [-1]), ("3", [3], [2, 4]), ("4-7", [4, 7], [3, 8]), ("none", [], [-1, 0, 1])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = VersionRange.parse(text)
    assert str(versions) == text
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert bool(versions) == bool(inside)


def test_a_closed_range_counts_up() -> None:
    assert list(VersionRange.parse("4-6")) == [4, 5, 6]
    assert list(NO_VERSIONS) == []


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("TopicId", "topic_id"),
        ("isKRaftController", "is_kraft_controller"),
        ("KRaftVersion", "kraft_version"),
        ("Enable2Pc", "enable_2pc"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
    ],
)
def test_names_are_spelled_as_python_does(name: str, spelled: str) -> None:
    assert snake_case(name) == spelled


def test_every_schema_keeps_the_rules_that_the_codecs_rely_on() -> None:
    for name in message_names():
        schema = load_schema(name)
        assert schema.name == name
        assert schema.versions
        structs = (schema, *schema.structs)
        assert len({struct.name for struct in structs}) == len(structs)
        for struct in structs:
            names = [field.python_name for field in struct.fields]
            tags = [field.tag for field in struct.fields if field.tag is not None]
            assert len(set(names)) == len(names)
            assert len(set(tags)) == len(tags)
            for field in struct.fields:
                assert (field.struct is not None) == (field.kind == "struct")
                assert (field.tag is None) == (not field.tagged_versions)
                # What is tagged is compact; what is a struct exists wherever its field does.
                for version in schema.versions:
                    if field.is_tagged(version):
                        assert field.is_flexible(version)
                    if field.struct and field.is_present(version):
                        assert version in field.struct.versions


def test_the_client_id_of_a_request_header_is_never_compact() -> None:
    schema = load_schema("RequestHeader")
    client_id = schema.fields[3]
    assert client_id.name == "ClientId"
    assert schema.is_flexible(2)
    assert not client_id.is_flexible(2)
