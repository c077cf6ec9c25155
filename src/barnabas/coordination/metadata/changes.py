"""The differences between two images of the metadata."""

from __future__ import annotations

from barnabas.coordination.metadata.image import MetadataImage, TopicImage


def changed_topics(before: MetadataImage, after: MetadataImage) -> tuple[list[TopicImage], list[TopicImage]]:
    """Topics that are new or different, and topics that are gone (a topic with a new id is both)."""
    if before.topics is after.topics:
        return [], []
    changed = [topic for name, topic in after.topics.items() if before.topics.get(name) is not topic]
    gone = [
        topic
        for name, topic in before.topics.items()
        if (now := after.topics.get(name)) is None or now.id != topic.id
    ]
    return changed, gone
