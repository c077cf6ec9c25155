"""A process that searches: pieces come in by standard input, hits and progress go out, one JSON object a line.

    in    {"topic": …, "query": …, "settings": {…}, …}               at the start of each search
          a piece (pieces.py)                                        until the input ends
    out   {"hit": …}  {"bytes": …, "records": …}  {"warning": …}     while a piece is searched
          {"done": true, "edge_ms": …, "is_cut": …}                  after each piece: the time that it reaches to, and
                                                                     whether it has had as many hits as are wanted

Settings, which may have passwords, come by the pipe, because other users of the machine can read command lines.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Final

from barnabas.console.search.chunks import CutBatch, Damaged, batch_bytes, walk
from barnabas.console.search.language import parse_query
from barnabas.console.search.masking import parse_masks
from barnabas.console.search.matcher import Matcher
from barnabas.console.search.pace import NICENESS, Pace
from barnabas.console.search.pieces import Piece, piece_of
from barnabas.console.search.render import render_record
from barnabas.errors import KafkaError
from barnabas.log.reader.partition_files import OffsetIndexReader, SegmentGone, open_segment
from barnabas.log.reader.transactions import AbortedBatches
from barnabas.model import TopicPartition
from barnabas.primitives.priority import lower_priority
from barnabas.records.header import parse_header, verify_crc
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record

if TYPE_CHECKING:
    from barnabas.client.reader.partition_reader import Fetched, PartitionReader

# Small enough for the cache of a core: bytes are searched right after they are read.
CHUNK_BYTES: Final = 1 << 20
PROGRESS_BYTES: Final = 8 << 20
BATCH_BYTES_MAX: Final = 256 << 20
LINE_BYTES_MAX: Final = 4 << 20
SHORT_PREVIEW_BYTES: Final = 256
# A piece that makes no progress for so long fails.
FETCH_TIMEOUT_MS: Final = 30_000
WARNINGS_MAX: Final = 20
# Batches that are read again in one step.
KEPT_AT_ONCE: Final = 16

Tell = Callable[[dict[str, Any]], None]


class Searcher:
    """Searches pieces of one topic."""

    def __init__(self, form: Mapping[str, Any], tell: Tell) -> None:
        self._topic: str = form["topic"]
        self._matcher = Matcher(parse_query(form["query"]))
        self._mask = parse_masks(form.get("masks", ())).of(self._topic)
        self._is_newest_first: bool = form["is_newest_first"]
        self._hits_max: int = form["hits_max"]
        self._hits_left = self._hits_max
        self._edge_ms: int | None = None
        self._preview_bytes: int = form["preview_bytes"]
        self._settings: Mapping[str, str] = form["settings"]
        self._tell = tell
        self._reader: PartitionReader | None = None
        self._warnings = 0

    def search(self, piece: Piece) -> Iterator[None]:
        """Searches while it is iterated: each step is a part of the piece."""
        self._hits_left = self._hits_max
        self._edge_ms = None
        return self._search_by_fetching(piece) if piece.segment is None else self._search_file(piece)

    def end_of_piece(self) -> dict[str, Any]:
        return {"done": True, "edge_ms": self._edge_ms, "is_cut": self._hits_left <= 0}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _search_file(self, piece: Piece) -> Iterator[None]:
        segment = piece.segment
        assert segment is not None
        aborted = AbortedBatches(piece.aborted) if piece.aborted else None
        try:
            file = open_segment(segment.path, segment.inode)
        except SegmentGone as error:
            self._warn(f"{error}; its records were not searched")
            return
        position = piece.start_position
        chunk_bytes = CHUNK_BYTES
        done_bytes = done_records = 0
        # Where the batches begin that may have hits, with their sizes. They are read again from the newest back.
        kept: list[tuple[int, int]] = []
        while position < piece.end_position and self._hits_left > 0:
            yield
            data = file.pread(min(chunk_bytes, piece.end_position - position), position)
            if not data:
                self._warn(f"{segment.path} was truncated while it was searched")
                break
            try:
                walked = walk(data, self._matcher, piece.bounds, aborted)
            except (CutBatch, Damaged) as fault:
                if isinstance(fault, CutBatch) and fault.size_bytes > chunk_bytes:
                    end_position = position + fault.size_bytes
                    if end_position <= piece.end_position and fault.size_bytes <= BATCH_BYTES_MAX:
                        chunk_bytes = fault.size_bytes
                        continue
                next_position = OffsetIndexReader(segment, file).position_after(position)
                # The end of the last segment may be a batch that is being written.
                if not (segment.is_last and next_position >= segment.size_bytes):
                    self._warn(
                        f"{segment.path} is damaged at position {position}; the search continues at {next_position}"
                    )
                position = next_position
                continue
            chunk_bytes = CHUNK_BYTES
            self._note_edge(walked.first_ms, walked.last_ms)
            if self._is_newest_first:
                kept += ((position + each, batch_bytes(data, each)) for each in walked.candidates)
            else:
                for candidate in walked.candidates:
                    self._tell_hits(self._matches(data, candidate, piece), piece)
            position += walked.position
            done_bytes += walked.position
            done_records += walked.record_count
            if done_bytes >= PROGRESS_BYTES:
                self._tell({"bytes": done_bytes, "records": done_records})
                done_bytes = done_records = 0
        self._tell({"bytes": done_bytes, "records": done_records})
        for number, (start_position, size_bytes) in enumerate(reversed(kept)):
            if self._hits_left <= 0:
                return
            if number % KEPT_AT_ONCE == 0:
                yield
            self._tell_hits(self._matches(file.pread(size_bytes, start_position), 0, piece), piece)

    def _note_edge(self, first_ms: int | None, last_ms: int | None) -> None:
        """Remembers the time up to which a piece was searched: that of its first batch if the newest come first."""
        if not self._is_newest_first:
            self._edge_ms = last_ms if last_ms is not None else self._edge_ms
        elif self._edge_ms is None:
            self._edge_ms = first_ms

    def _search_by_fetching(self, piece: Piece) -> Iterator[None]:
        # Searches on files need no client.
        from barnabas.client.reader.partition_reader import PartitionReader
        from barnabas.client.reader.ranges import read_range

        if self._reader is None:
            self._reader = PartitionReader(self._settings)
        bounds = piece.bounds
        partition = TopicPartition(self._topic, piece.partition)
        told_bytes = 0
        latest: deque[Record] = deque(maxlen=self._hits_max)
        for fetched in read_range(
            self._reader,
            partition,
            bounds.start_offset,
            bounds.end_offset,
            timeout_ms=FETCH_TIMEOUT_MS,
            on_data_loss=self._warn,
        ):
            yield
            data = fetched.as_bytes()
            candidates, record_count = self._candidates(fetched, data, piece)
            for candidate in candidates:
                matches = self._matches(data, candidate, piece)
                if self._is_newest_first:
                    # The records of a batch come from the newest back.
                    latest.extend(reversed(list(matches)))
                else:
                    self._tell_hits(matches, piece)
            # The sizes of pieces are estimates, so the progress is limited to them.
            share = min(len(data), piece.size_bytes - told_bytes)
            told_bytes += share
            self._tell({"bytes": share, "records": record_count})
            if self._hits_left <= 0:
                return
        self._tell_hits(reversed(latest), piece)
        if told_bytes < piece.size_bytes:
            self._tell({"bytes": piece.size_bytes - told_bytes, "records": 0})

    def _candidates(self, fetched: Fetched, data: bytes, piece: Piece) -> tuple[list[int], int]:
        """The batches of an answer that may have hits, and the number of its records."""
        bounds = piece.bounds
        if self._settings.get("isolation.level") == "read_committed":
            candidates, record_count = [], 0
            while (header := fetched.next_batch(bounds.start_offset)) is not None:
                record_count += header.last_offset_delta + 1
                candidates.append(fetched.batch_position)
                self._note_edge(header.max_timestamp, header.max_timestamp)
            return candidates, record_count
        try:
            walked = walk(data, self._matcher, bounds, None)
        except (CutBatch, Damaged) as error:
            raise KafkaError(f"{self._topic}-{piece.partition}: a fetch returned no whole batch") from error
        self._note_edge(walked.first_ms, walked.last_ms)
        return walked.candidates, walked.record_count

    def _matches(self, data: bytes, position: int, piece: Piece) -> Iterator[Record]:
        """The records of a batch that match, in the order of the search."""
        bounds = piece.bounds
        try:
            header = parse_header(data, position)
            verify_crc(data, position, header)
            records = decode_batch(data, position, header=header)
        except KafkaError as error:
            self._warn(f"{self._topic}-{piece.partition}: {error}")
            return
        for record in reversed(records) if self._is_newest_first else records:
            if not (
                bounds.start_offset <= record.offset < bounds.end_offset
                and bounds.start_ms <= record.timestamp < bounds.end_ms
            ):
                continue
            shown = (record.key, record.value, record.headers)
            if self._mask is not None:
                shown = self._mask.apply(*shown)
            if self._matcher.matches(*shown):
                yield record

    def _tell_hits(self, records: Iterable[Record], piece: Piece) -> None:
        for record in records:
            if self._hits_left <= 0:
                return
            self._hits_left -= 1
            self._tell({"hit": self._render(record, piece.partition)})

    def _render(self, record: Record, partition: int) -> dict[str, Any]:
        rendered = render_record(
            self._topic, partition, record, limit_bytes=self._preview_bytes, mask=self._mask
        )
        if len(json.dumps(rendered)) > LINE_BYTES_MAX:
            rendered = render_record(
                self._topic, partition, record, limit_bytes=SHORT_PREVIEW_BYTES, mask=self._mask
            )
        return rendered

    def _warn(self, message: str) -> None:
        self._warnings += 1
        if self._warnings <= WARNINGS_MAX:
            self._tell({"warning": message})


def lines_of(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    while line := stream.readline():
        form: dict[str, Any] = json.loads(line)
        yield form


def main() -> None:
    lower_priority(NICENESS)
    pace = Pace()
    output = sys.stdout.buffer

    def tell(form: dict[str, Any]) -> None:
        output.write(json.dumps(form).encode() + b"\n")
        output.flush()

    searcher: Searcher | None = None
    for form in lines_of(sys.stdin.buffer):
        try:
            if "query" in form:
                if searcher is not None:
                    searcher.close()
                searcher = Searcher(form, tell)
                pace.begin_search()
                continue
            assert searcher is not None
            pace.run(searcher.search(piece_of(form)))
        except (KafkaError, OSError, ExceptionGroup) as error:
            tell({"error": f"{type(error).__name__}: {error}"})
        assert searcher is not None
        tell(searcher.end_of_piece())
    if searcher is not None:
        searcher.close()
    pace.close()


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        # The console has stopped the search, or ends.
        os._exit(0)
