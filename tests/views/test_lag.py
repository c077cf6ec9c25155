from __future__ import annotations

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import CommittedOffset, GroupDescription
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from barnabas.views.lag import group_lag, lag_of


def described(admin: Admin, group: str) -> GroupDescription:
    return admin.describe_groups([group])[group]


def test_lag_is_what_is_left_to_read() -> None:
    assert lag_of(3, 10) == 7
    assert lag_of(10, 10) == 0
    # A log that was truncated ends before the committed offset.
    assert lag_of(12, 10) == 0
    assert lag_of(None, 10) is None
    assert lag_of(3, None) is None


def test_a_group_without_members_lags_by_its_offsets(admin: Admin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    committed = {first: CommittedOffset(offset=1, metadata="note"), second: CommittedOffset(offset=2)}
    admin.alter_group_offsets(f"group-{topic}", committed)
    lags = group_lag(admin, described(admin, f"group-{topic}"))
    assert [(each.partition, each.committed_offset, each.end_offset, each.lag) for each in lags] == [
        (first, 1, 3, 2),
        (second, 2, 2, 0),
    ]
    assert [each.metadata for each in lags] == ["note", ""]
    assert {each.member for each in lags} == {None}


def test_the_partitions_of_members_are_shown_before_they_commit(
    broker: Broker, admin: Admin, topic: str
) -> None:
    with broker.consumer(topic, group_id=f"group-{topic}", enable_auto_commit=False) as consumer:
        read = 0
        while read < 5:
            read += len(consumer.poll(1_000))
        group = described(admin, f"group-{topic}")
        lags = group_lag(admin, group)
        assert [(each.committed_offset, each.end_offset, each.lag) for each in lags] == [
            (None, 3, None),
            (None, 2, None),
        ]
        assert {each.member for each in lags} == set(group.members)


def test_a_topic_that_is_gone_has_no_end(admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    admin.alter_group_offsets(f"group-{topic}", {partition: CommittedOffset(offset=1)})
    group = described(admin, f"group-{topic}")
    # The offsets are read before the topic is deleted, as deleting a topic deletes its offsets.
    committed = admin.list_group_offsets(group.group_id)
    admin.delete_topics([topic])
    assert committed[partition].offset == 1
    assert all(each.lag is None for each in group_lag(admin, group))
