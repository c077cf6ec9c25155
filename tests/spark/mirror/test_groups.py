"""Groups of a mirror: they follow while nobody is in them over there, and never stand in the mirror's way."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import CommittedOffset
from barnabas.model import TopicPartition
from barnabas.spark.mirror.groups import GroupMirror
from barnabas.spark.mirror.offsets import Copied, OffsetMap
from barnabas.testing import Broker, free_port
from tests.client.consumer_servers import OURS, Server, numbered, read, running
from tests.peers.kafka_peer import V4
from tests.waiting import wait_until

RECORDS = 20
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[OURS, pytest.param(V4, marks=[pytest.mark.slow, pytest.mark.peer])])
def there(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("there")) as server:
        yield server


class Mirrored:
    """A topic here with two partitions, whose mirror has all of it, ten offsets further on."""

    def __init__(self, here: Broker, there: Server) -> None:
        self.topic = f"mirrored-{next(_numbers)}"
        self.group = f"readers-of-{self.topic}"
        self.here, self.there = here, there
        here.create_topics({self.topic: 2})
        there.topic(2, name=f"copy.{self.topic}")
        for partition in range(2):
            there.produce(f"copy.{self.topic}", numbered(RECORDS + 10), partition=partition)
        self.offset_map = OffsetMap(
            Copied(
                source=TopicPartition(self.topic, partition),
                target_topic=f"copy.{self.topic}",
                batch_id=0,
                source_start=0,
                source_end=RECORDS,
                target_start=10,
                target_end=RECORDS + 10,
            )
            for partition in range(2)
        )
        self.mirror = GroupMirror(
            {"bootstrap.servers": here.bootstrap},
            {"bootstrap.servers": there.address},
            self.offset_map,
            chosen=re.compile(f"{self.group}.*"),
            own_group=f"{self.group}-mirror",
        )

    def commit_here(self, offsets: Mapping[int, int | CommittedOffset], group: str | None = None) -> None:
        with Admin(bootstrap_servers=self.here.bootstrap) as admin:
            admin.alter_group_offsets(
                group or self.group,
                {TopicPartition(self.topic, partition): each for partition, each in offsets.items()},
            )

    def commit_there(self, offsets: Mapping[int, int]) -> None:
        self.there.admin.alter_group_offsets(
            self.group,
            {TopicPartition(f"copy.{self.topic}", partition): each for partition, each in offsets.items()},
        )

    def sync(self) -> None:
        with Admin(bootstrap_servers=self.here.bootstrap) as admin:
            self.mirror.sync(admin, self.there.admin)

    def offsets(self, group: str | None = None) -> dict[int, int]:
        found = self.there.admin.list_group_offsets(group or self.group)
        assert {partition.topic for partition in found} <= {f"copy.{self.topic}"}
        return {partition.partition: committed.offset for partition, committed in found.items()}


@pytest.fixture
def mirrored(broker: Broker, there: Server) -> Mirrored:
    return Mirrored(broker, there)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_over_there_is_left_alone(
    mirrored: Mirrored, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    copy = f"copy.{mirrored.topic}"
    mirrored.commit_here({0: 8, 1: RECORDS})
    with mirrored.there.consumer(
        group_id=mirrored.group, group_protocol=protocol, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([copy])
        read(consumer, 2 * (RECORDS + 10))
        consumer.commit({TopicPartition(copy, 0): 3, TopicPartition(copy, 1): 4})
        with caplog.at_level(logging.INFO):
            mirrored.sync()
        assert not caplog.records
        assert mirrored.offsets() == {0: 3, 1: 4}
        # Nor is the member put out.
        consumer.commit({TopicPartition(copy, 0): 5})
        assert mirrored.offsets() == {0: 5, 1: 4}
    mirrored.sync()
    assert mirrored.offsets() == {0: 18, 1: RECORDS + 10}


def test_offsets_only_go_forward_and_no_further_than_the_mirror(mirrored: Mirrored) -> None:
    mirrored.commit_here({0: 5, 1: 5})
    mirrored.commit_there({0: 25, 1: 12})
    mirrored.sync()
    assert mirrored.offsets() == {0: 25, 1: 15}
    # The readers here are ahead of the mirror: over there they have all that it has.
    mirrored.commit_here({0: RECORDS + 500, 1: RECORDS + 1})
    mirrored.sync()
    assert mirrored.offsets() == {0: RECORDS + 10, 1: RECORDS + 10}


def test_an_offset_before_all_that_the_map_knows_is_not_guessed(mirrored: Mirrored) -> None:
    later = Copied(
        source=TopicPartition(mirrored.topic, 0),
        target_topic=f"copy.{mirrored.topic}",
        batch_id=900,
        source_start=2_000,
        source_end=2_010,
        target_start=20,
        target_end=30,
    )
    # The mirror's first line of this partition is gone.
    mirrored.mirror._offset_map = OffsetMap([later])
    mirrored.commit_here({0: 1_999, 1: 7})
    mirrored.sync()
    assert mirrored.offsets() == {}
    mirrored.commit_here({0: 2_003})
    mirrored.sync()
    assert mirrored.offsets() == {0: 23}


def test_metadata_goes_along_and_other_groups_do_not(mirrored: Mirrored) -> None:
    mirrored.commit_here({0: CommittedOffset(offset=5, leader_epoch=0, metadata="noted")})
    own, other = f"{mirrored.group}-mirror", f"other-{mirrored.group}"
    mirrored.commit_here({0: 5}, own)
    mirrored.commit_here({0: 5}, other)
    mirrored.sync()
    found = mirrored.there.admin.list_group_offsets(mirrored.group)
    assert found == {
        TopicPartition(f"copy.{mirrored.topic}", 0): CommittedOffset(offset=15, metadata="noted")
    }
    listed = {each.group_id for each in mirrored.there.admin.list_groups()}
    assert not {own, other} & listed


def test_a_group_that_fails_is_told_and_the_others_go_on(
    mirrored: Mirrored, caplog: pytest.LogCaptureFixture
) -> None:
    gone = TopicPartition(f"gone-{mirrored.topic}", 0)
    mirrored.here.create_topics({gone.topic: 1})
    mirrored.offset_map.add(
        Copied(
            source=gone,
            target_topic=gone.topic,
            batch_id=0,
            source_start=0,
            source_end=10,
            target_start=0,
            target_end=10,
        )
    )
    with Admin(bootstrap_servers=mirrored.here.bootstrap) as admin:
        admin.alter_group_offsets(f"{mirrored.group}-1", {gone: 5})
    mirrored.commit_here({0: 5}, f"{mirrored.group}-2")
    with caplog.at_level(logging.INFO):
        mirrored.sync()
    (told,) = caplog.messages
    assert f"offsets of group {mirrored.group}-1 are not mirrored now" in told
    assert mirrored.offsets(f"{mirrored.group}-2") == {0: 15}


def test_a_source_that_does_not_answer_is_told(mirrored: Mirrored, caplog: pytest.LogCaptureFixture) -> None:
    with Admin(bootstrap_servers=f"127.0.0.1:{free_port()}", default_api_timeout_ms=100) as nobody:
        mirrored.mirror.sync(nobody, mirrored.there.admin)
    assert "offsets of groups are not mirrored now" in caplog.messages[-1]


def test_groups_move_while_no_records_come_and_once_more_at_the_end(mirrored: Mirrored) -> None:
    mirrored.commit_here({0: 5})
    mirrored.mirror.start(interval_ms=20)

    def is_at(offset: int) -> bool:
        return mirrored.offsets() == {0: offset}

    for offset in (5, 6):
        mirrored.commit_here({0: offset})
        wait_until(partial(is_at, offset + 10), mirrored.offsets)
    mirrored.mirror.close()
    last = GroupMirror(
        {"bootstrap.servers": mirrored.here.bootstrap},
        {"bootstrap.servers": mirrored.there.address},
        mirrored.offset_map,
        chosen=re.compile(mirrored.group),
        own_group="mirror",
    )
    last.start(interval_ms=3_600_000)
    mirrored.commit_here({0: 9})
    last.close()
    assert mirrored.offsets() == {0: 19}
