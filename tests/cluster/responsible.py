"""A client of a whole cluster: each request goes to the broker that is responsible for it, as real clients do it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from barnabas.protocol.message import Message
from tests.broker.group_requests import find
from tests.cluster.clusters import Cluster, ClusterBroker
from tests.waiting import Deadline

GROUP: Final = 0
TRANSACTION: Final = 1
POLL_S: Final = 0.05


class ResponsibleClient:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def ask(self, api_name: str, version: int, body: Message) -> Any:
        """Asks again while the responsible broker is not to be found or goes away."""
        deadline = Deadline()
        while True:
            try:
                broker_id = self._responsible(api_name, body)
                if broker_id is not None:
                    with self._cluster[broker_id].client() as client:
                        return client.ask(api_name, version, body)
            except OSError as error:
                deadline.check(f"{api_name}: {error}")
            deadline.check(f"nobody is responsible for {api_name}")
            time.sleep(POLL_S)

    def _responsible(self, api_name: str, body: Any) -> int | None:
        match api_name:
            case "Fetch":
                topic = body.topics[0]
                known = self._anyone().partition(topic.topic, topic.partitions[0].partition)
                return None if known is None or known.leader_id < 0 else known.leader_id
            case "InitProducerId":
                return self._coordinator(body.transactional_id, TRANSACTION)
            case "OffsetCommit":
                return self._coordinator(body.group_id, GROUP)
            case "OffsetFetch":
                return self._coordinator(body.groups[0].group_id, GROUP)
            case "CreateTopics":
                controller_id = self._anyone().metadata([]).controller_id
                return controller_id if controller_id >= 0 else None
            case _:
                return self._anyone().broker_id

    def _coordinator(self, key: str, key_type: int) -> int | None:
        with self._anyone().client() as client:
            found = find(client, key, version=4, key_type=key_type)
        return int(found.node_id) if found.error_code == 0 else None

    def _anyone(self) -> ClusterBroker:
        return self._cluster.running[0]


@contextlib.contextmanager
def responsible(cluster: Cluster) -> Iterator[ResponsibleClient]:
    yield ResponsibleClient(cluster)
