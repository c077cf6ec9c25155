"""The metadata cache of a broker: the current image, and its subscribers.

Handlers and the other parts of a broker read the cluster from here, never from the controller. The cache is changed on
the event loop only. Subscribers see each new image stage by stage, in the order of `Stage`; within a stage, in the
order in which they subscribed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum, auto
from typing import TypeAlias

from barnabas.coordination.metadata.image import MetadataImage

log = logging.getLogger(__name__)

ImageListener: TypeAlias = Callable[[MetadataImage, MetadataImage], None]


class Stage(IntEnum):
    """The stages of subscribers. A stage may rely on the work of the stages before it."""

    REPLICAS = auto()
    """Partitions of this broker appear, change and go."""
    SETTINGS = auto()
    """The broker's settings and those of its logs change."""
    QUOTAS = auto()
    COORDINATORS = auto()
    """Coordinators load and unload. They need the partitions and the settings."""
    CLIENTS = auto()
    """The answers to clients change; nothing in the broker depends on this stage."""


class MetadataCache:
    """`image` is the cluster as this broker knows it."""

    __slots__ = ("_subscribers", "image", "published")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        # How many images followed the first one.
        self.published = 0
        self._subscribers: list[tuple[Stage, ImageListener]] = []

    def subscribe(self, stage: Stage, listener: ImageListener) -> None:
        """Calls the listener with the image before each change and the one after it."""
        self._subscribers.append((stage, listener))
        # The sort is stable.
        self._subscribers.sort(key=lambda subscriber: subscriber[0])

    def publish(self, image: MetadataImage) -> None:
        """Replaces the image. A subscriber that fails is logged, and the others run."""
        before, self.image = self.image, image
        self.published += 1
        for stage, listener in list(self._subscribers):
            try:
                listener(before, image)
            except Exception:
                log.exception("A subscriber to metadata failed in stage %s", stage.name)
