"""The offsets of triggers with a broker, without Spark: where a stream begins, what a trigger reads, what is lost."""

from __future__ import annotations

import logging
import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.spark.topics.directory import DataLost
from barnabas.spark.topics.options import parse_options
from barnabas.spark.topics.schema import spark_schema
from barnabas.spark.topics.stream import TopicStreamReader
from barnabas.testing import Broker
from tests.spark.topic_reading import BASE_MS, bounds, expire, fill, given, places


def stream(broker: Broker, topic: str, **options: object) -> TopicStreamReader:
    parsed = parse_options(given(broker, topic, **options))
    return TopicStreamReader(parsed, spark_schema(include_headers=False))


def test_a_stream_begins_where_it_is_told(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, [10, 5])
    cases: list[tuple[dict[str, object], dict[str, int]]] = [
        ({}, {"0": 10, "1": 5}),
        ({"startingOffsets": "earliest"}, {"0": 0, "1": 0}),
        ({"startingOffsets": f'{{"{topic}":{{"0":3,"1":-1}}}}'}, {"0": 3, "1": 5}),
        ({"startingTimestamp": BASE_MS + 3_000}, {"0": 3, "1": 3}),
    ]
    for options, expected in cases:
        made = stream(broker, topic, **options)
        assert made.initialOffset() == {topic: expected}
        made.stop()


def test_a_stream_begins_once(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    made = stream(broker, topic)
    start = made.initialOffset()
    fill(broker, topic, [5])
    assert made.initialOffset() == start == {topic: {"0": 10}}
    made.stop()


def test_a_first_batch_that_is_repeated_after_a_restart(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    group = f"group-of-{topic}"
    first = stream(broker, topic, kafka__group__id=group)
    start = first.initialOffset()
    fill(broker, topic, [5])
    end = first.latestOffset(start, ReadAllAvailable())
    assert bounds(first.partitions(start, end)) == [(0, 10, 15)]
    first.stop()
    for more in (0, 3):
        fill(broker, topic, [more])
        # Spark asks for the beginning again, and the latest offset is another one now.
        restarted = stream(broker, topic, kafka__group__id=group)
        assert bounds(restarted.partitions(restarted.initialOffset(), end)) == [(0, 10, 15)]
        restarted.stop()
        unknown = stream(broker, topic)
        with pytest.raises(
            DataLost, match=r"the first batch .* With a kafka.group.id the beginning is known"
        ):
            unknown.partitions(unknown.initialOffset(), end)
        unknown.stop()
        lenient = stream(broker, topic, failOnDataLoss="false")
        assert lenient.partitions(lenient.initialOffset(), end) == []
        lenient.stop()
    named = stream(broker, topic, startingOffsets=f'{{"{topic}":{{"0":10}}}}')
    assert bounds(named.partitions(named.initialOffset(), end)) == [(0, 10, 15)]
    named.stop()


def test_a_trigger_reads_what_there_is_or_its_share(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, [20, 10])
    made = stream(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=6)
    assert made.getDefaultReadLimit() == ReadMaxRows(6)
    start = made.initialOffset()
    assert made.reportLatestOffset() is None
    assert made.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 20, "1": 10}}
    middle = made.latestOffset(start, made.getDefaultReadLimit())
    assert middle == {topic: {"0": 4, "1": 2}}
    assert made.reportLatestOffset() == {topic: {"0": 20, "1": 10}}
    copy = pickle.loads(pickle.dumps(stream(broker, topic)))
    found = [
        row
        for partition in made.partitions(start, middle)
        for batch in copy.read(partition)
        for row in batch.to_pylist()
    ]
    assert places(found) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert made.partitions(middle, middle) == []
    made.stop()


def test_a_trigger_waits_for_enough(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    made = stream(broker, topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="30s")
    clock = made._clock = ManualClock()
    limit = made.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = made.initialOffset()
    made.latestOffset(start, limit)
    fill(broker, topic, [3])
    assert made.latestOffset(start, limit) == start
    clock.advance_ms(30_000)
    assert made.latestOffset(start, limit) == {topic: {"0": 3}}
    fill(broker, topic, [5])
    assert made.latestOffset({topic: {"0": 3}}, limit) == {topic: {"0": 8}}
    # A query that ends with what is there now does not wait for more.
    made.prepareForTriggerAvailableNow()
    assert made.latestOffset({topic: {"0": 7}}, limit) == {topic: {"0": 8}}
    made.stop()


def test_what_is_available_now_stays_so(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    made = stream(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    made.prepareForTriggerAvailableNow()
    limit = made.getDefaultReadLimit()
    ends = []
    offset = made.initialOffset()
    for _ in range(3):
        offset = made.latestOffset(offset, limit)
        ends.append(offset[topic]["0"])
        fill(broker, topic, [10])
    assert ends == [8, 10, 10]
    made.stop()


def test_new_partitions_are_picked_up(broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 1})
    made = stream(broker, topic, maxOffsetsPerTrigger=100)
    start = made.initialOffset()
    with broker.admin() as admin:
        admin.create_partitions({topic: 2})
    fill(broker, topic, [1, 3])
    end = made.latestOffset(start, made.getDefaultReadLimit())
    assert end == {topic: {"0": 1, "1": 3}}
    assert bounds(made.partitions(start, end)) == [(0, 0, 1), (1, 0, 3)]
    expire_of_new = {TopicPartition(topic, 1): 2}
    with broker.admin() as admin:
        admin.delete_records(expire_of_new)
    with pytest.raises(DataLost, match=f"{topic}-1 is new and begins at offset 2"):
        made.partitions(start, end)
    made.stop()


def test_losses_between_triggers(broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    strict, lenient = stream(broker, topic), stream(broker, topic, failOnDataLoss="false")
    start, end = {topic: {"0": 2}}, {topic: {"0": 10}}
    for made in (strict, lenient):
        made.initialOffset()
    expire(broker, topic, 6)
    with pytest.raises(DataLost, match=r"offsets 2 to 5 of .* have expired; its log begins at 6"):
        strict.partitions(start, end)
    assert bounds(lenient.partitions(start, end)) == [(0, 6, 10)]
    with broker.admin() as admin:
        admin.delete_topics(topic)
        with pytest.raises(DataLost, match="cannot be read any more"):
            strict.latestOffset(end, ReadAllAvailable())
        assert lenient.latestOffset(end, ReadAllAvailable()) == {}
        assert lenient.partitions(end, {}) == []
        admin.create_topics({topic: 1})
    fill(broker, topic, [4])
    with pytest.raises(DataLost, match="were deleted and created again"):
        strict.latestOffset(end, ReadAllAvailable())
    assert lenient.latestOffset(end, ReadAllAvailable()) == {topic: {"0": 4}}
    with pytest.raises(DataLost, match="was read up to offset 10 and ends at 4 now"):
        strict.partitions(end, {topic: {"0": 4}})
    # All of the new topic is read, however often that is planned.
    for _ in range(2):
        assert bounds(lenient.partitions(end, {topic: {"0": 4}})) == [(0, 0, 4)]
    fill(broker, topic, [6])
    assert lenient.latestOffset({topic: {"0": 4}}, ReadAllAvailable()) == end
    assert bounds(lenient.partitions({topic: {"0": 4}}, end)) == [(0, 4, 10)]
    # A query that does not know that the topic was another one goes on where the new one ends, as after a lost tail.
    restarted = stream(broker, topic, failOnDataLoss="false")
    assert restarted.partitions({topic: {"0": 99}}, end) == []
    restarted.stop()
    strict.stop()
    lenient.stop()


def test_progress_is_committed_to_the_group(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topics({topic: 1})
    fill(broker, topic, [10])
    group = f"group-of-{topic}"
    made = stream(broker, topic, startingOffsets="earliest", kafka__group__id=group)
    with broker.admin() as admin:

        def committed() -> int:
            return admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset

        made.latestOffset(made.initialOffset(), ReadAllAvailable())
        assert committed() == 0
        made.commit({topic: {"0": 7}})
        assert committed() == 7
        # The last batch of a query that ends by itself: Spark asks once more, and does not commit.
        made.latestOffset({topic: {"0": 10}}, ReadAllAvailable())
        assert committed() == 10
    # A group with members cannot be told; the query goes on.
    fill(broker, topic, [1])
    with broker.consumer(topic, group_id=group) as member:
        assert member.poll(60_000)
        with caplog.at_level(logging.WARNING):
            made.commit({topic: {"0": 8}})
    assert f"progress was not committed to kafka.group.id={group}" in caplog.text
    made.stop()
