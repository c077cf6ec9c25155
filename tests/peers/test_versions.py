"""The versions between brokers are those of Apache Kafka 3.9.1, level by level."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.errors import InvalidConfig
from barnabas.peers.versions import NEWEST, OLDEST, VERSIONS, ProtocolLevel
from barnabas.protocol.apis import api_for_name
from tests.peers.kafka_peer import TOOL_TIMEOUT_S, V3, PeerUnavailable, jars

ORACLE = Path(__file__).with_name("ProtocolLevels.java")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("3.9-IV0", ProtocolLevel(3, 9, 0)),
        ("3.9", ProtocolLevel(3, 9, 0)),
        ("3.9.1", ProtocolLevel(3, 9, 0)),
        ("2.4", ProtocolLevel(2, 4, 1)),
        ("2.4-IV0", ProtocolLevel(2, 4, 0)),
        ("3.7", ProtocolLevel(3, 7, 4)),
    ],
)
def test_levels_are_written_in_several_ways(text: str, level: ProtocolLevel) -> None:
    assert ProtocolLevel.parse(text) == level
    assert ProtocolLevel.parse(str(level)) == level


@pytest.mark.parametrize("text", ["", "3", "4.0", "2.1", "3.9-IV1", "3.9-IVx", "3.10", "x"])
def test_other_levels_are_refused(text: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"inter\.broker\.protocol\.version: brokers speak levels 2\.2-IV0 to"
    ):
        ProtocolLevel.parse(text)


@pytest.mark.parametrize("api", VERSIONS)
def test_every_level_has_a_version_that_we_can_encode(api: str) -> None:
    known = api_for_name(api)
    levels = [since for since, _ in VERSIONS[api]]
    versions = [version for _, version in VERSIONS[api]]
    assert levels == sorted(levels, reverse=True)
    assert versions == sorted(versions, reverse=True)
    assert levels[-1] == OLDEST
    assert known.first_version <= versions[-1] <= versions[0] <= known.last_version
    assert NEWEST.version_of(api) == versions[0]


@pytest.mark.slow
@pytest.mark.peer
def test_levels_are_those_of_kafka() -> None:
    try:
        libraries = jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    printed = subprocess.run(
        ["java", "-cp", f"{libraries}/*", str(ORACLE)],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=True,
    ).stdout
    names = ("Fetch", "ListOffsets", "OffsetForLeaderEpoch")
    compared = 0
    for line in printed.splitlines():
        text, short, *versions = line.split()
        release = tuple(map(int, text.partition("-")[0].split(".")))
        if OLDEST[:2] <= release <= NEWEST[:2]:
            level = ProtocolLevel.parse(text)
            assert [level.version_of(name) for name in names] == list(map(int, versions)), text
            assert ProtocolLevel.parse(short) >= level
            compared += 1
    assert compared == 35
