"""Errors that a client raises itself, each with the code that a broker would return."""

from __future__ import annotations

from barnabas.errors import InvalidRecord, InvalidRequest, InvalidTxnState, MessageTooLarge, RequestTimedOut


class SerializationError(InvalidRecord):
    """A key, value or header that cannot be made bytes of."""


class RecordTooLarge(MessageTooLarge):
    """A record that is larger than a request or the buffer may be."""


class BufferExhausted(RequestTimedOut):
    """There was no room for a record within max.block.ms."""


class DeliveryTimedOut(RequestTimedOut):
    """A record was not acknowledged within delivery.timeout.ms."""


class ClientClosed(InvalidRequest):
    """The client was closed."""


class TransactionMisuse(InvalidTxnState):
    """A call that has no place in this state of a transaction."""


class CalledInCallback(InvalidRequest):
    """A callback of the client made a call that would wait for the callback's own thread."""
