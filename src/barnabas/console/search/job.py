"""A search under way, and the events that it causes, as an asynchronous iterator.

The queue of events is bounded, and so are the pipes: if the client reads slowly, the workers wait. When the iterator is
closed, for whatever reason, workers that are in the middle of a piece end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from barnabas.console.search.masking import NO_MASKS, Masks
from barnabas.console.search.plan import Plan, SearchRequest
from barnabas.console.search.sweep import InOrder, Order, Sweep
from barnabas.console.search.workers import WORKERS_MAX, WorkerPool, worker_count

QUEUED_EVENTS_MAX: Final = 256
PROGRESS_S: Final = 0.2
SEARCH_S_MAX: Final = 3_600.0
WARNINGS_MAX: Final = 20

Event = tuple[str, dict[str, Any]]
"""A name and its data: plan, hit, progress, warning, end."""


class SearchJob:
    """Searches the pieces of a plan. Use `events` once."""

    def __init__(
        self,
        request: SearchRequest,
        plan: Plan,
        settings: Mapping[str, str],
        pool: WorkerPool,
        *,
        is_in_order: bool = False,
        masks: Masks = NO_MASKS,
    ) -> None:
        """A job in order gives the hits of one piece after the other, by one process."""
        self._masks = masks
        self._request = request
        self._plan = plan
        self._settings = dict(settings)
        self._pool = pool
        self._workers_max = 1 if is_in_order else WORKERS_MAX
        # One more than the limit tells whether there are more.
        self._piece_hits_max = request.hits_max + is_in_order
        self._order: Order = (
            InOrder(plan.pieces, request.hits_max)
            if is_in_order
            else Sweep(plan.pieces, request.hits_max, is_oldest_first=request.is_oldest_first)
        )
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(QUEUED_EVENTS_MAX)
        self._done_bytes = 0
        self._records = 0

    async def events(self) -> AsyncGenerator[Event, None]:
        started_s = told_s = time.monotonic()
        plan = self._plan
        yield (
            "plan",
            {
                "total_bytes": plan.total_bytes,
                "partitions": plan.partition_count,
                "local_partitions": plan.local_partitions,
                "pieces": len(plan.pieces),
            },
        )
        for warning in plan.warnings[:WARNINGS_MAX]:
            yield "warning", {"message": warning}
        is_partial, is_late = bool(plan.warnings), False
        count = min(worker_count(), self._workers_max, len(plan.pieces))
        workers = [asyncio.create_task(self._work()) for _ in range(count)]
        watcher = asyncio.create_task(self._finish(workers))
        try:
            async with asyncio.timeout(SEARCH_S_MAX):
                while (form := await self._queue.get()) is not None:
                    for event in self._handle(form):
                        is_partial |= event[0] == "warning"
                        yield event
                    if self._order.is_enough:
                        break
                    now_s = time.monotonic()
                    if now_s - told_s >= PROGRESS_S:
                        told_s = now_s
                        for hit in self._order.take():
                            yield "hit", hit
                        yield "progress", self._progress(now_s - started_s)
        except TimeoutError:
            is_late = True
        finally:
            for task in (watcher, *workers):
                task.cancel()
            await asyncio.gather(watcher, *workers, return_exceptions=True)
        for hit in self._order.take():
            yield "hit", hit
        reason = "limit" if self._order.is_limited else "error" if is_partial else "complete"
        yield (
            "end",
            {"reason": "timeout" if is_late else reason, **self._progress(time.monotonic() - started_s)},
        )

    def _handle(self, form: dict[str, Any]) -> list[Event]:
        """What a message of a process causes at once."""
        if "hit" in form:
            return [("hit", each) for each in self._order.add(form["hit"])]
        if "warning" in form or "error" in form:
            return [("warning", {"message": form.get("warning") or form.get("error")})]
        if "done" in form:
            self._order.finish(form["task"], form["edge_ms"], is_cut=form["is_cut"])
        else:
            self._done_bytes += form["bytes"]
            self._records += form["records"]
        return []

    def _progress(self, elapsed_s: float) -> dict[str, Any]:
        return {
            "bytes": self._done_bytes,
            "total_bytes": self._plan.total_bytes,
            "records": self._records,
            "hits": self._order.hit_count,
            "elapsed_ms": round(elapsed_s * 1000),
        }

    async def _finish(self, workers: list[asyncio.Task[None]]) -> None:
        results = await asyncio.gather(*workers, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                await self._queue.put({"error": f"a worker process failed: {result}"})
        await self._queue.put(None)

    async def _work(self) -> None:
        """Gives pieces to one process, one after the other, until there are none left."""
        async with self._pool.worker() as worker:
            worker.write(
                {
                    "topic": self._request.topic,
                    "query": self._request.query,
                    "hits_max": self._piece_hits_max,
                    "is_newest_first": not self._request.is_oldest_first,
                    "preview_bytes": self._request.preview_bytes,
                    "settings": self._settings,
                    "masks": self._masks.as_texts(),
                }
            )
            while (task := self._order.next_task()) is not None:
                worker.write(task.piece.as_json())
                while "done" not in (form := await worker.read()):
                    await self._queue.put(form)
                worker.is_idle = True
                await self._queue.put({**form, "task": task})
