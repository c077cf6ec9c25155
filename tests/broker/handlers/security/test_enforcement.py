"""A broker with an authorizer: what clients may do, what is logged and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.security import acls
from tests.broker.acl_requests import (
    ADMIN_HOST,
    ANONYMOUS,
    CLIENT_HOST,
    WITH_AUTHORIZER,
    HostClient,
    add_acls,
    allow,
    create,
    make_admin,
)
from tests.broker.record_requests import batch, create_topic, fetch, produce, produce_request
from tests.broker.running import RunningBroker

AUDIT = "kafka.authorizer.logger"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, WITH_AUTHORIZER) as running:
        make_admin(running)
        with HostClient(running.port, ADMIN_HOST) as admin:
            create_topic(admin, "orders", 2)
        yield running


@pytest.mark.slow
def test_our_own_clients_are_told(secured: RunningBroker) -> None:
    with (
        Producer(bootstrap_servers=secured.address) as producer,
        pytest.raises((TopicAuthorizationFailed, ClusterAuthorizationFailed)),
    ):
        producer.send("orders", b"value").result(60)
    add_acls(secured, [allow(acls.WRITE, acls.TOPIC, "orders")])
    with Producer(bootstrap_servers=secured.address) as producer:
        producer.send("orders", b"value").result(60)
    add_acls(secured, [allow(acls.READ, acls.TOPIC, "orders")])
    with Consumer(bootstrap_servers=secured.address, group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(GroupAuthorizationFailed):
            consumer.poll(10_000)
    add_acls(secured, [allow(acls.READ, acls.GROUP, "billing")])
    with Consumer(
        bootstrap_servers=secured.address, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        assert [record.value for record in consumer.poll(60_000)] == [b"value"]
        consumer.commit()
    with Admin(bootstrap_servers=secured.address) as admin:
        # The topic of offsets is there by now, but it is hidden.
        assert [each.name for each in admin.list_topics()] == ["orders"]
        with pytest.raises(ClusterAuthorizationFailed):
            admin.describe_acls()


def test_a_transactional_id_is_asked_about_with_records_of_a_transaction(secured: RunningBroker) -> None:
    add_acls(secured, [allow(acls.WRITE, acls.TOPIC, "orders")])
    with HostClient(secured.port, CLIENT_HOST) as client:
        for records, error in (
            (batch(b"value"), 0),
            (
                batch(b"value", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
                TransactionalIdAuthorizationFailed.code,
            ),
        ):
            request = produce_request("orders", records)
            request.transactional_id = "payments"
            [topic] = client.ask("Produce", 9, request).responses
            assert topic.partition_responses[0].error_code == error


def test_a_produce_without_acks_ends_the_connection(secured: RunningBroker) -> None:
    with HostClient(secured.port, CLIENT_HOST) as client:
        client.send("Produce", 9, produce_request("orders", batch(b"value"), acks=0))
        assert client.is_closed_by_broker()


def test_a_permission_that_is_taken_away_ends_at_once(secured: RunningBroker) -> None:
    add_acls(secured, [allow(acls.READ, acls.TOPIC, "orders")])
    with HostClient(secured.port, CLIENT_HOST) as client, HostClient(secured.port, ADMIN_HOST) as admin:
        assert fetch(client, "orders", 0).error_code == 0
        denial = allow(acls.READ, acls.TOPIC, "ord", pattern_type=acls.PREFIXED, permission=acls.DENY)
        assert [each.error_code for each in create(admin, denial)] == [0]
        assert fetch(client, "orders", 0).error_code == TopicAuthorizationFailed.code


def test_denials_and_changes_are_logged_and_counted(
    secured: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    with HostClient(secured.port, CLIENT_HOST) as client, HostClient(secured.port, ADMIN_HOST) as admin:
        assert produce(client, "orders", batch(b"value")).error_code == TopicAuthorizationFailed.code
        create(admin, allow(acls.WRITE, acls.TOPIC, "orders"))
        assert produce(client, "orders", batch(b"value")).error_code == 0
    lines = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    assert lines == [
        (
            f"Principal = {ANONYMOUS} is Denied operation = WRITE from host = 127.0.0.1 on resource ="
            " Topic:LITERAL:orders for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
        ),
        f"Added ACLs of Topic:LITERAL:orders by {ANONYMOUS}: ALLOW {ANONYMOUS} WRITE from 127.0.0.1",
    ]
    page = secured.server.broker.metrics.render()
    assert "kafka_server_plugins_authorization_denied_total 1\n" in page
    assert "kafka_server_plugins_acls_total_count 7\n" in page


def test_operations_are_told(secured: RunningBroker) -> None:
    add_acls(
        secured, [allow(acls.ALTER_CONFIGS, acls.TOPIC, "orders"), allow(acls.READ, acls.TOPIC, "orders")]
    )
    with HostClient(secured.port, CLIENT_HOST) as client:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="orders")], include_topic_authorized_operations=True
        )
        [topic] = client.ask("Metadata", 12, request).topics
    allowed = (acls.READ, acls.DESCRIBE, acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS)
    assert topic.topic_authorized_operations == sum(1 << each for each in allowed)
