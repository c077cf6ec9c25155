"""A reset leaves nothing behind that the next run would stumble over, in whatever cluster it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.model import TopicPartition
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.reset import execute_reset, plan_reset
from barnabas.testing import Broker
from tests.spark.pipeline.conftest import Write


@pytest.fixture(scope="module")
def there() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def commit(broker: Broker, topic: str, group: str) -> None:
    broker.create_topics({topic: 1})
    with broker.admin() as admin:
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 7})


def groups_of(broker: Broker) -> set[str]:
    with broker.admin() as admin:
        return {each.group_id for each in admin.list_groups()}


def test_the_group_of_a_mirror_is_removed_in_both_clusters(
    pipeline_file: Write, broker: Broker, there: Broker, topic: str
) -> None:
    """Over there it has the note of which batches are in: with it the next run would refuse to begin."""
    pipeline = load_pipeline(
        pipeline_file(
            f"""
            name = "{topic}-mirror"
            [sources.all]
            type = "topic"
            topics = "{topic}"
            [sink]
            type = "mirror"
            kafka = {{ bootstrap.servers = "{there.bootstrap}" }}
            """
        ),
        {"BARNABAS_BOOTSTRAP": broker.bootstrap},
    )
    name = pipeline.name
    commit(broker, topic, name)
    commit(there, f"{name}.offset-map", name)
    commit(there, topic, f"{topic}-readers")
    planned = plan_reset(pipeline, None, None)
    assert planned.groups == (name,)
    execute_reset(pipeline, planned)
    assert name not in groups_of(broker) | groups_of(there)
    assert f"{topic}-readers" in groups_of(there)


def test_the_group_of_dead_letters_is_removed_where_no_topic_is_read(
    pipeline_file: Write, there: Broker, topic: str
) -> None:
    pipeline = load_pipeline(
        pipeline_file(
            f"""
            name = "{topic}-files"
            [sources.all]
            type = "log"
            paths = "{there.directory}"
            topics = "{topic}"
            format = {{ kind = "json", schema = "n BIGINT" }}
            [sink]
            type = "files"
            path = "out"
            file_format = "parquet"
            [dead_letters]
            topic = "{topic}-bad"
            """
        ),
        {"BARNABAS_BOOTSTRAP": there.bootstrap},
    )
    commit(there, f"{topic}-bad", f"{pipeline.name}.dead-letters")
    planned = plan_reset(pipeline, None, None)
    assert planned.groups == (f"{pipeline.name}.dead-letters",)
    execute_reset(pipeline, planned)
    assert not groups_of(there) & set(planned.groups)
