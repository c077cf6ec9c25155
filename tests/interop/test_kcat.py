"""kcat with Debian's librdkafka, which is years older than the one in confluent-kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.interop.programs import available, kcat, run


@pytest.fixture(scope="module")
def command() -> list[str]:
    return available(kcat)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_is_produced_is_consumed(
    broker: BrokerProcess, command: list[str], compression: str, acks: str
) -> None:
    topic = f"kcat-{compression}-{acks}"
    lines = [f"key-{number}:{'value ' * 20}{number}" for number in range(500)]
    settings = ["-X", f"acks={acks}", "-H", "name=header", "-z", compression]
    run(
        [*command, "-b", broker.address, "-P", "-t", topic, "-K", ":", *settings],
        stdin="\n".join(lines) + "\n",
    )
    printed = run([*command, "-b", broker.address, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"])
    found: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    assert [f"{each['key']}:{each['payload']}" for each in found] == lines
    assert [each["offset"] for each in found] == list(range(500))
    assert all(each["headers"] == ["name", "header"] for each in found)


def test_where_to_begin(broker: BrokerProcess, command: list[str]) -> None:
    topic = "kcat-offsets"
    run([*command, "-b", broker.address, "-P", "-t", topic], stdin="a\nb\nc\nd\n")

    def consumed(*options: str) -> list[str]:
        listed = run([*command, "-b", broker.address, "-C", "-t", topic, "-e", "-q", *options])
        return listed.split()

    assert consumed("-o", "beginning") == ["a", "b", "c", "d"]
    assert consumed("-o", "2") == ["c", "d"]
    assert consumed("-o", "-1") == ["d"]
    assert consumed("-o", "s@0") == ["a", "b", "c", "d"]
    assert consumed("-o", "end") == []
    assert (
        run([*command, "-b", broker.address, "-Q", "-t", f"{topic}:0:-1"]).strip() == f"{topic} [0] offset 4"
    )


def test_an_idempotent_producer_and_the_old_message_formats(
    broker: BrokerProcess, command: list[str]
) -> None:
    for name, settings in {
        "idempotent": ["-X", "enable.idempotence=true"],
        # Without asking for versions it speaks as to a broker of that time, in the message formats of then.
        "v1": ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.10.0"],
        "v0": ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0"],
    }.items():
        topic = f"kcat-{name}"
        run([*command, "-b", broker.address, "-P", "-t", topic, *settings, "-z", "gzip"], stdin="a\nb\nc\n")
        printed = run([*command, "-b", broker.address, "-C", "-t", topic, "-e", "-q", "-o", "0", *settings])
        assert printed.split() == ["a", "b", "c"]


def test_the_cluster_is_listed(broker: BrokerProcess, command: list[str]) -> None:
    run([*command, "-b", broker.address, "-P", "-t", "kcat-listed"], stdin="a\n")
    listed = json.loads(run([*command, "-b", broker.address, "-L", "-J"]))
    [node] = listed["brokers"]
    assert node["name"] == broker.address
    assert "kcat-listed" in {topic["topic"] for topic in listed["topics"]}
