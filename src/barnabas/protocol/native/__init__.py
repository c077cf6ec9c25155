"""Codecs of the messages that brokers and clients exchange all the time, as plain typed Python for mypyc to compile.

`make messages` writes a module for each. As interpreted Python they decode at half the speed of the codecs that are
made for one version at first use (`decoders`, `encoders`), so they are taken only where they are compiled. Both
refuse and accept the same, and `faults` speaks for both.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Final

from barnabas.protocol.schema import snake_case

# Each adds a second or two to a build: its module here and that of its type are among setup.py's hot modules.
HOT_MESSAGES: Final = (
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FetchRequest",
    "FetchResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitKey",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetCommitValue",
    "ProduceRequest",
    "ProduceResponse",
    "RequestHeader",
    "ResponseHeader",
    "TransactionLogKey",
    "TransactionLogValue",
)


def native_codec(message_class: type[Any]) -> ModuleType | None:
    """The module with `decode(version, data, position)` and `encode(version, message, splices)`, if it is compiled."""
    name = message_class.__name__
    # What mypyc has compiled carries this attribute; a type and its codec are compiled together.
    if name not in HOT_MESSAGES or not hasattr(message_class, "__mypyc_attrs__"):
        return None
    return importlib.import_module(f"{__name__}.{snake_case(name)}")
