"""PushTelemetryRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/PushTelemetryRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import ZERO_UUID, TaggedFields, Uuid, equal, show


class PushTelemetryRequest:
    __slots__ = (
        "client_instance_id",
        "subscription_id",
        "terminating",
        "compression_type",
        "metrics",
        "unknown_tagged_fields",
    )
    client_instance_id: Uuid
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        client_instance_id: Uuid = ZERO_UUID,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
