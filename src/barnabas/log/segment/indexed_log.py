"""The source from which an index is rebuilt."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.log.file_system import NoSuchFile
from barnabas.log.segment.file import SegmentFile
from barnabas.log.segment.scan import scan
from barnabas.records.header import BatchHeader, CorruptRecord

logger = logging.getLogger(__name__)


class IndexedLog:
    """The log file that an index leads into, and how far apart its entries are."""

    __slots__ = ("file", "interval_bytes")

    def __init__(self, file: SegmentFile, interval_bytes: int) -> None:
        self.file = file
        self.interval_bytes = interval_bytes

    def size_bytes(self) -> int:
        try:
            return self.file.size_bytes()
        except NoSuchFile:
            return 0

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch, as far as the log is whole."""
        size_bytes = self.size_bytes()
        if not size_bytes:
            return
        try:
            for position, header, _, _ in scan(self.file.reading(), self.file.path, 0, size_bytes, False):
                yield position, header
        except CorruptRecord as error:
            logger.error("an index ends where its log is damaged: %s", error)
