"""The moment between the start of a broker and its place in a cluster of one host.

A broker that has just started knows no topics before the controller sends them. To clients that ask it by then, every
topic would be unknown. So it answers other brokers first, and clients once it knows what there is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.coordination.metadata.cache import Stage
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.model import BrokerId

log = logging.getLogger("barnabas.server")

# A controller that has just been killed is replaced in less.
JOIN_TIMEOUT_S: Final = 5.0


async def wait_for_metadata(broker: Broker, known_topics: Collection[str]) -> None:
    """Until the controller has told this broker which topics there are, and that it leads those that only it has.

    The store had `known_topics`.
    """
    has_joined = asyncio.Event()
    own_id = broker.replicas.broker_id

    def check(before: MetadataImage, after: MetadataImage) -> None:
        # All topics come in one request. Some may have been deleted by then.
        has_topics = not known_topics or any(name in after.topics for name in known_topics)
        if (
            has_topics
            and own_id in after.brokers
            and not has_joined.is_set()
            and _leads_its_own(after, own_id)
        ):
            has_joined.set()

    broker.metadata.subscribe(Stage.CLIENTS, check)
    check(broker.image, broker.image)
    try:
        await asyncio.wait_for(has_joined.wait(), JOIN_TIMEOUT_S)
    except TimeoutError:
        log.warning(
            "The controller has not given this broker all its partitions within %.0f s", JOIN_TIMEOUT_S
        )
    else:
        await broker.replicas.opened(broker.image.topics)


def _leads_its_own(image: MetadataImage, broker_id: BrokerId) -> bool:
    return all(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.replicas == (broker_id,)
    )
