"""Streams of events: searches, live tails, downloads. Each ends when the client goes away or stops reading.

A stream is server-sent events (or the lines of a download). It sends the next event only when the connection has taken
the last one, so a slow reader makes the source wait; a reader that takes nothing for SEND_S_MAX is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from barnabas.client.consumer.aio import AsyncConsumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.console.api.call import Call, Console, Schemas, SessionState
from barnabas.console.api.downloads import CSV, JSON_LINES, download_lines
from barnabas.console.api.errors import describe_error
from barnabas.console.api.messages import search_request
from barnabas.console.search.job import Event, SearchJob
from barnabas.console.search.language import parse_query
from barnabas.console.search.masking import Mask
from barnabas.console.search.matcher import Matcher
from barnabas.console.search.plan import HITS_MAX, SearchRequest, chosen_partitions, make_plan
from barnabas.console.search.render import render_record
from barnabas.console.search.workers import WorkerPool
from barnabas.errors import InvalidRequest, KafkaError, ThrottlingQuotaExceeded
from barnabas.model import Offset, TimestampMs, TopicPartition
from barnabas.records.record import Record

SEND_S_MAX: Final = 30.0
STREAMS_MAX: Final = 16
SEARCHES_MAX: Final = 4

# A tail shows at most this many records in each interval; the others are counted.
TAIL_INTERVAL_S: Final = 0.25
TAIL_RECORDS_MAX: Final = 50
TAIL_POLL_RECORDS: Final = 2_000
TAIL_PREVIEW_BYTES: Final = 2 << 10
# A tail that stays open without a reader's interest ends by itself.
TAIL_S_MAX: Final = 3_600.0

DOWNLOAD_RECORDS_MAX: Final = 1_000_000
DOWNLOAD_PREVIEW_BYTES: Final = 512 << 10


class Slot:
    """A place of a limit; it is given back once."""

    def __init__(self, limit: Limit) -> None:
        self._limit: Limit | None = limit

    def release(self) -> None:
        if self._limit is not None:
            self._limit.open_count -= 1
            self._limit = None


class Limit:
    """Counts what is open, and refuses more than a number of them."""

    def __init__(self, what: str, maximum: int) -> None:
        self._what = what
        self._maximum = maximum
        self.open_count = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[Slot]:
        """A slot, taken before the first wait. The response that gets it gives it back; a failure does so here."""
        if self.open_count >= self._maximum:
            raise ThrottlingQuotaExceeded(
                f"{self._maximum} {self._what} are open, which is the limit: stop one, or try again later"
            )
        self.open_count += 1
        slot = Slot(self)
        try:
            yield slot
        except BaseException:
            slot.release()
            raise


class Streams:
    """Opens the streams of all users."""

    def __init__(self) -> None:
        self._streams = Limit("streams", STREAMS_MAX)
        self._searches = Limit("searches", SEARCHES_MAX)
        self.pool = WorkerPool()

    async def search(self, console: Console, call: Call) -> Response:
        with self._searches.taken() as slot:
            job = await self._job(console, search_request(call))
            return EventStream(_decorated(job.events(), console.schemas), slot, console.state)

    async def download(self, console: Console, call: Call) -> Response:
        is_csv = call.text("format") == "csv"
        request = search_request(call, hits_max=DOWNLOAD_RECORDS_MAX, hits=DOWNLOAD_RECORDS_MAX)
        with self._searches.taken() as slot:
            first_offsets = None
            has_limit = call.text("limit") != ""
            if has_limit and not request.is_oldest_first:
                first_offsets = await self._newest(console, request)
            # In the order of partitions and offsets, whichever records were chosen.
            request = replace(request, preview_bytes=DOWNLOAD_PREVIEW_BYTES, is_oldest_first=True)
            job = await self._job(console, request, first_offsets=first_offsets, is_in_order=True)
            safe = "".join(each if each.isalnum() or each in "._-" else "_" for each in request.topic)
            return Download(
                download_lines(
                    _decorated(job.events(), console.schemas),
                    CSV if is_csv else JSON_LINES,
                    None if has_limit else request.hits_max,
                ),
                slot,
                console.state,
                "text/csv" if is_csv else "application/x-ndjson",
                f"{safe}.{'csv' if is_csv else 'jsonl'}",
            )

    async def _newest(self, console: Console, request: SearchRequest) -> dict[int, int]:
        """The offsets from which on each partition has its part of the newest hits."""
        if request.hits_max > HITS_MAX:
            raise InvalidRequest(
                f"a download of the newest records has a limit of at most {HITS_MAX}; for more, use order=oldest"
            )
        found: list[tuple[int, int, int]] = []
        job = await self._job(console, replace(request, preview_bytes=0))
        async with contextlib.aclosing(job.events()) as events:
            async for name, hit in events:
                if name == "hit":
                    found.append((hit["timestamp_ms"], hit["offset"], hit["partition"]))
        offsets: dict[int, int] = {}
        for _, offset, partition in heapq.nlargest(request.hits_max, found):
            offsets[partition] = min(offset, offsets.get(partition, offset))
        return offsets

    async def _job(
        self,
        console: Console,
        request: SearchRequest,
        *,
        first_offsets: dict[int, int] | None = None,
        is_in_order: bool = False,
    ) -> SearchJob:
        settings = console.connection.consumer_settings(is_committed=request.is_committed)
        plan = await asyncio.to_thread(
            lambda: make_plan(
                console.sampler.admin,
                request,
                settings,
                may_read_files=console.may_read_files,
                first_offsets=first_offsets,
            )
        )
        return SearchJob(request, plan, settings, self.pool, is_in_order=is_in_order, masks=console.masks)

    async def tail(self, console: Console, call: Call) -> Response:
        request = search_request(call)
        with self._streams.taken() as slot:
            topic = await asyncio.to_thread(
                lambda: console.sampler.admin.describe_topics([request.topic])[request.topic]
            )
            partitions = [
                TopicPartition(request.topic, each) for each in chosen_partitions(topic, request.partitions)
            ]
            settings = console.connection.consumer_settings(is_committed=request.is_committed)
            mask = console.masks.of(request.topic)
            events = _decorated(_tail(request, partitions, settings, mask), console.schemas)
            return EventStream(events, slot, console.state)


async def _tail(
    request: SearchRequest,
    partitions: list[TopicPartition],
    settings: dict[str, str],
    mask: Mask | None,
) -> AsyncGenerator[Event, None]:
    """New records as they arrive; `dropped` counts those that matched and are not shown."""
    matcher = Matcher(parse_query(request.query))
    ends_s = time.monotonic() + TAIL_S_MAX
    seen = dropped = 0
    async with AsyncConsumer({**settings, "max.poll.records": str(TAIL_POLL_RECORDS)}) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_end(*partitions)
        for partition in partitions:
            # Records from now on: the position is fixed before the stream says that it is open.
            await consumer.position(partition)
        yield "ready", {"partitions": len(partitions)}
        while time.monotonic() < ends_s:
            shown: list[dict[str, Any]] = []
            interval_ends_s = time.monotonic() + TAIL_INTERVAL_S
            while (left_s := interval_ends_s - time.monotonic()) > 0:
                for record in await consumer.poll(left_s * 1000):
                    seen += 1
                    if not matcher.matches_all:
                        fields = (record.key, record.value, record.headers)
                        if not matcher.matches(*(fields if mask is None else mask.apply(*fields))):
                            continue
                    if len(shown) < TAIL_RECORDS_MAX:
                        shown.append(_rendered(record, mask))
                    else:
                        dropped += 1
            yield "records", {"records": shown, "seen": seen, "dropped": dropped}
    yield "end", {"reason": "timeout"}


def _decorate_all(schemas: Schemas, records: list[dict[str, Any]]) -> None:
    for each in records:
        schemas.decorate(each)


async def _decorated(
    events: AsyncGenerator[Event, None], schemas: Schemas | None
) -> AsyncGenerator[Event, None]:
    """The same events, with records decoded by their schemas."""
    async with contextlib.aclosing(events):
        async for name, data in events:
            records = [data] if name == "hit" else data.get("records") if name == "records" else None
            if records and schemas is not None:
                await asyncio.to_thread(_decorate_all, schemas, records)
            yield name, data


def _rendered(found: ConsumerRecord, mask: Mask | None) -> dict[str, Any]:
    record = Record(
        Offset(found.offset), TimestampMs(found.timestamp_ms), found.key, found.value, found.headers
    )
    return render_record(found.topic, found.partition, record, limit_bytes=TAIL_PREVIEW_BYTES, mask=mask)


class _Stream(Response):
    """Sends pieces of text while the client takes them and its session lasts."""

    def __init__(
        self, slot: Slot, state: SessionState | None, media_type: str, headers: dict[str, str]
    ) -> None:
        self._state = state
        super().__init__(media_type=media_type, headers={"cache-control": "no-store", **headers})
        del self.headers["content-length"]
        self._slot = slot

    def pieces(self) -> AsyncGenerator[str, None]:
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(send))
        watching = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, watching):
                task.cancel()
            results = await asyncio.gather(sending, watching, return_exceptions=True)
            self._slot.release()
        if isinstance(results[0], Exception) and not isinstance(results[0], OSError | TimeoutError):
            raise results[0]

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                if self._state is not None and not self._state.is_open:
                    break
                async with asyncio.timeout(SEND_S_MAX):
                    await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(_Stream):
    """Server-sent events; an error is the last event."""

    def __init__(self, events: AsyncGenerator[Event, None], slot: Slot, state: SessionState | None) -> None:
        super().__init__(slot, state, "text/event-stream", {})
        self._events = events

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            async with contextlib.aclosing(self._events):
                async for name, data in self._events:
                    yield f"event: {name}\ndata: {json.dumps(data)}\n\n"
        except (KafkaError, ExceptionGroup) as error:
            yield f"event: failed\ndata: {json.dumps(describe_error(error)[1])}\n\n"


class Download(_Stream):
    def __init__(
        self,
        lines: AsyncGenerator[str, None],
        slot: Slot,
        state: SessionState | None,
        media_type: str,
        file_name: str,
    ) -> None:
        disposition = {"content-disposition": f'attachment; filename="{file_name}"'}
        super().__init__(slot, state, media_type, disposition)
        self._lines = lines

    def pieces(self) -> AsyncGenerator[str, None]:
        return self._lines
