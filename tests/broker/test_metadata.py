"""Metadata against a running broker: topics by name and by id."""

from __future__ import annotations

import pytest

from barnabas import errors
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic


def ask(client: RawClient, version: int, *topics: MetadataRequestTopic) -> MetadataResponse:
    found: MetadataResponse = client.ask("Metadata", version, MetadataRequest(topics=list(topics)))
    return found


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(client: RawClient, version: int) -> None:
    name = f"by-id-{version}"
    topic_id = create_topic(client, name).topic_id
    found = ask(
        client,
        version,
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None, topic_id=b"x" * 16),
    )
    assert {(topic.name, topic.topic_id, topic.error_code) for topic in found.topics} == {
        (name, topic_id, 0),
        (None, b"x" * 16, errors.UnknownTopicId.code),
    }


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_have_ids_and_do_not_answer_them(client: RawClient, version: int) -> None:
    name = f"by-name-{version}"
    topic_id = create_topic(client, name).topic_id
    for asked in (
        MetadataRequestTopic(name=None, topic_id=topic_id),
        MetadataRequestTopic(name=None),
        MetadataRequestTopic(name=name, topic_id=topic_id),
    ):
        found = ask(client, version, asked, MetadataRequestTopic(name="beside"))
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in found.topics] == [
            (asked.name or "", asked.topic_id, errors.InvalidRequest.code),
            ("beside", bytes(16), errors.InvalidRequest.code),
        ]
        assert (found.brokers, found.cluster_id, found.controller_id) == ([], None, -1)
    [topic] = ask(client, version, MetadataRequestTopic(name=name)).topics
    assert (topic.error_code, topic.topic_id) == (0, topic_id)
