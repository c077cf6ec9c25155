"""Asks each of several brokers which topics it knows. A client would ask any of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.errors import KafkaError
from barnabas.testing.ports import HOST

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import TopicDescription

_POLL_S: Final = 0.01


def ports_that_lag(
    ports: Sequence[int],
    settings: Mapping[str, str],
    timeout_s: float,
    *,
    created: Mapping[str, str | None] | None = None,
    deleted: Collection[str] = (),
) -> list[int]:
    """The ports of brokers that do not know the present topics within the time.

    `created` has the ids of topics by name; without it, all topics that a broker knows have to have leaders. `deleted`
    has ids.
    """
    from barnabas.client.admin.admin import Admin

    deadline_s = time.monotonic() + timeout_s
    lagging = []
    for port in ports:
        # A client that has not used another broker yet asks the one that it is given.
        with Admin({**settings, "bootstrap.servers": f"{HOST}:{port}"}) as admin:
            while not _is_current(_topics(admin), created, deleted):
                if time.monotonic() > deadline_s:
                    lagging.append(port)
                    break
                time.sleep(_POLL_S)
    return lagging


def _topics(admin: Admin) -> dict[str, TopicDescription] | None:
    try:
        return admin.describe_topics()
    except KafkaError as error:
        # A broker refuses logins until it has its users.
        if not error.retriable and error.name != "SASL_AUTHENTICATION_FAILED":
            raise
        return None


def _is_current(
    topics: Mapping[str, TopicDescription] | None,
    created: Mapping[str, str | None] | None,
    deleted: Collection[str],
) -> bool:
    if topics is None or any(topic.topic_id in deleted for topic in topics.values()):
        return False
    led = {
        name: topic.topic_id
        for name, topic in topics.items()
        if topic.partitions and all(each.leader is not None for each in topic.partitions)
    }
    if created is None:
        return len(led) == len(topics)
    return all(led.get(name, "") == topic_id for name, topic_id in created.items())
