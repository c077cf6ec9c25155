"""Errors of the transaction coordinator as clients know them."""

from __future__ import annotations

from barnabas.errors import NONE, InvalidProducerEpoch, KafkaError, ProducerFenced


def code_for(error: KafkaError | None, *, knows_fenced: bool) -> int:
    """Older clients know a producer that is fenced by the epoch it has."""
    if error is None:
        return NONE
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return InvalidProducerEpoch.code
    return error.code
