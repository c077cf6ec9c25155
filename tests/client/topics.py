from __future__ import annotations

from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess


def made(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: str) -> str:
    with broker.client() as client:
        create_topic(client, topic, partitions, **configs)
    return topic
