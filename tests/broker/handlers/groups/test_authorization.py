"""Groups of clients that may describe some topics only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import GroupAuthorizationFailed, TransactionalIdAuthorizationFailed
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.security import acls
from tests.broker.acl_requests import (
    ADMIN_HOST,
    CLIENT_HOST,
    WITH_AUTHORIZER,
    HostClient,
    add_acls,
    allow,
    make_admin,
)
from tests.broker.group_requests import find, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker
from tests.waiting import wait_until


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, WITH_AUTHORIZER) as running:
        make_admin(running)
        yield running


def assigned_topics(admin: RawClient, group_id: str) -> set[str]:
    [group] = admin.ask("ConsumerGroupDescribe", 1, ConsumerGroupDescribeRequest(group_ids=[group_id])).groups
    assert group.error_code == 0, group
    return {each.topic_name for member in group.members for each in member.target_assignment.topic_partitions}


def test_a_client_without_permission_has_no_topic_created(secured: RunningBroker) -> None:
    with HostClient(secured.port, CLIENT_HOST) as client:
        assert find(client, "g").error_code == GroupAuthorizationFailed.code
        assert find(client, "t", key_type=1).error_code == TransactionalIdAuthorizationFailed.code
    with HostClient(secured.port, ADMIN_HOST) as admin:
        wait_for_coordinator(admin, "g")
    assert list(secured.server.broker.image.topics) == ["__consumer_offsets"]


@pytest.mark.slow
def test_an_expression_matches_topics_that_the_member_may_describe(secured: RunningBroker) -> None:
    add_acls(secured, [allow(acls.READ, acls.GROUP, "g"), allow(acls.DESCRIBE, acls.TOPIC, "log-open")])
    with HostClient(secured.port, ADMIN_HOST) as admin, HostClient(secured.port, CLIENT_HOST) as client:
        for name in ("log-open", "log-secret"):
            create_topic(admin, name)
        wait_for_coordinator(admin, "g")

        def beat(member: str, epoch: int) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_regex="log-.*",
                topic_partitions=[],
            )
            response = client.ask("ConsumerGroupHeartbeat", 1, request)
            assert response.error_code == 0, response
            return response

        beats = [beat("member", 0)]

        def is_assigned() -> bool:
            # The member gets its partitions after the expression is resolved.
            beats.append(beat("member", beats[-1].member_epoch))
            return bool(assigned_topics(admin, "g"))

        wait_until(is_assigned)
        assert assigned_topics(admin, "g") == {"log-open"}
