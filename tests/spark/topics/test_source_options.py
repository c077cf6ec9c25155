from __future__ import annotations

import pickle

import pytest

from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.topics.offsets import EARLIEST, LATEST, admin_settings, nest, parse, render
from barnabas.spark.topics.options import TopicOptions, check_batch, check_stream, parse_options

MINIMAL = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}


def options(**given: str) -> TopicOptions:
    return parse_options({**MINIMAL, **{name.replace("__", "."): value for name, value in given.items()}})


def test_defaults_are_sparks() -> None:
    plain = options()
    assert plain.topics == ("clicks",)
    assert (plain.starting, plain.ending) == (None, None)
    assert plain.fail_on_data_loss
    assert not plain.include_headers
    assert (plain.attempts, plain.retry_interval_ms, plain.poll_timeout_ms) == (3, 1_000, 120_000)
    assert plain.max_trigger_delay_ms == 15 * 60_000
    assert plain.group is None
    assert not plain.is_read_committed


def test_names_come_in_any_case() -> None:
    given = parse_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "localhost:9092",
            "SUBSCRIBE": " a , b,,a",
            "MAXOFFSETSPERTRIGGER": "7",
            "failondataloss": "FALSE",
            "kafka.group.id": "lag",
            "kafka.isolation.level": "read_committed",
        }
    )
    assert given.topics == ("a", "b")
    assert given.max_offsets_per_trigger == 7
    assert not given.fail_on_data_loss
    assert given.group == "lag"
    assert given.is_read_committed


def test_options_go_to_tasks() -> None:
    given = options(startingOffsets='{"clicks":{"0":5}}', includeHeaders="true")
    assert pickle.loads(pickle.dumps(given)) == given


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"startingOfsets": "earliest"}, "'startingOfsets'; did you mean startingOffsets?"),
        ({"topic": "clicks"}, "topics to read are named by subscribe"),
        ({"bootstrap.servers": "x"}, "kafka.bootstrap.servers"),
        ({"path": "/clicks"}, "a topic has no path"),
        ({"xyz": "1"}, "there are subscribe, subscribePattern"),
        ({"kafka.isolation.levl": "x"}, "did you mean kafka.isolation.level?"),
        ({"kafka.isolation.level": "x"}, "Invalid value x for configuration kafka.isolation.level: "),
        (
            {"kafka.bootstrap.servers": "nowhere"},
            "Invalid value nowhere for configuration kafka.bootstrap.servers: ",
        ),
        ({"kafka.auto.offset.reset": "earliest"}, "a query starts at startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "decode the column key"),
        ({"kafka.value.deserializer": "x"}, "decode the column value"),
        ({"kafka.enable.auto.commit": "true"}, "progress is kept in the checkpoint"),
        ({"kafka.interceptor.classes": "x"}, "interceptor"),
        ({"assign": '{"a":[0]}'}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"includeHeaders": "yes"}, "includeHeaders='yes' is not allowed; it takes true or false"),
        ({"minPartitions": "0"}, "minPartitions='0'"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition='many'"),
        ({"maxTriggerDelay": "1 fortnight"}, "such as 500ms, 30s, 15m or 2h"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is above maxOffsetsPerTrigger=8"),
        ({"startingOffsets": "first"}, "it takes earliest, latest or JSON"),
        ({"startingOffsets": "{"}, "startingOffsets={: it is no JSON"),
        ({"startingOffsets": '{"a":5}'}, "topic 'a' has no partitions in braces"),
        ({"startingOffsets": '{"a":{"x":5}}'}, "'x' is no partition of topic 'a'"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-3 cannot be for partition 0"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday'"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "-1 cannot be for partition 0"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "it takes error or latest"),
    ],
)
def test_what_is_wrong_is_told_with_the_remedy(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_options({**MINIMAL, **given})
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_broker_and_topics_must_be_named() -> None:
    with pytest.raises(InvalidConfig, match=r"kafka.bootstrap.servers is missing"):
        parse_options({"subscribe": "clicks"})
    with pytest.raises(InvalidConfig, match="one of subscribe, subscribePattern, assign must be given"):
        parse_options({"kafka.bootstrap.servers": "localhost:9092"})


def test_a_pattern_is_a_regular_expression() -> None:
    broker = {"kafka.bootstrap.servers": "localhost:9092"}
    assert parse_options({**broker, "subscribePattern": "click.*"}).pattern == "click.*"
    with pytest.raises(InvalidConfig, match="is no regular expression"):
        parse_options({**broker, "subscribePattern": "click("})
    with pytest.raises(InvalidConfig, match="is empty"):
        parse_options({**broker, "subscribePattern": " "})


@pytest.mark.parametrize(
    "text", ["clicks", "[]", "{}", '{"a":0}', '{"a":[-1]}', '{"a":["0"]}', '{"a":[true]}']
)
def test_assigned_partitions_are_json(text: str) -> None:
    broker = {"kafka.bootstrap.servers": "localhost:9092"}
    assert parse_options({**broker, "assign": '{"b":[1,0]}'}).assigned == (
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )
    with pytest.raises(InvalidConfig, match="it takes JSON such as"):
        parse_options({**broker, "assign": text})


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("250", 250), ("500ms", 500), ("30 s", 30_000), ("2H", 7_200_000), ("1d", 86_400_000)],
)
def test_durations_have_units(text: str, expected_ms: float) -> None:
    assert options(maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


def test_the_most_particular_position_wins() -> None:
    by_offset = options(startingOffsets="Earliest").starting
    assert by_offset is not None
    assert by_offset.everywhere == EARLIEST
    by_partition = options(startingOffsets='{"clicks":{"0":-1,"1":7}}').starting
    assert by_partition is not None
    assert by_partition.each == {TopicPartition("clicks", 0): LATEST, TopicPartition("clicks", 1): 7}
    by_time = options(startingOffsets="latest", startingOffsetsByTimestamp='{"clicks":{"0":99}}').starting
    assert by_time is not None
    assert by_time.is_time
    assert by_time.each == {TopicPartition("clicks", 0): 99}
    assert not by_time.latest_if_none
    globally = options(
        startingTimestamp="5",
        startingOffsetsByTimestamp='{"clicks":{"0":99}}',
        startingOffsetsByTimestampStrategy="latest",
    ).starting
    assert globally is not None
    assert (globally.everywhere, globally.is_time, globally.latest_if_none) == (5, True, True)
    ending = options(endingTimestamp="5").ending
    assert ending is not None
    assert ending.latest_if_none


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets=latest: a batch that begins there reads nothing"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, r"startingOffsets=-1 \(latest\) of a-0"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, r"endingOffsets=-2 \(earliest\) of a-0"),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":8}}'},
            "startingOffsets=9 of a-0 is behind endingOffsets=8",
        ),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"1":9}}'},
            "must name the same partitions",
        ),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "startingTimestamp=9 is behind endingTimestamp=8",
        ),
    ],
)
def test_a_batch_has_a_beginning_and_an_end(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        check_batch(options(**given))


def test_positions_of_a_batch_that_are_good() -> None:
    check_batch(options(startingOffsets='{"a":{"0":-2}}', endingOffsets='{"a":{"0":-1}}'))
    check_batch(options(startingOffsets="earliest", endingOffsets="latest"))
    check_batch(options(startingTimestamp="9", endingOffsets="latest"))


def test_a_stream_has_no_end() -> None:
    check_stream(options(startingOffsets="latest"))
    for name, value in [("endingOffsets", "latest"), ("endingTimestamp", "5")]:
        with pytest.raises(InvalidConfig, match=f"{name} is given, and a stream has no end"):
            check_stream(options(**{name: value}))


def test_offsets_have_sparks_form() -> None:
    offsets = {TopicPartition("b", 10): 3, TopicPartition("b", 2): 0, TopicPartition("a", 0): 2**63 - 1}
    assert render(offsets) == '{"a":{"0":9223372036854775807},"b":{"2":0,"10":3}}'
    assert parse(render(offsets)) == offsets
    assert parse(nest(offsets)) == offsets
    assert render({}) == "{}"
    with pytest.raises(InvalidConfig, match="the checkpoint="):
        parse('["a"]', what="the checkpoint")


def test_an_admin_takes_what_it_knows() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "isolation.level": "read_committed", "client.id": "c"}
    assert admin_settings(given) == {"bootstrap.servers": "h:1", "client.id": "c"}
