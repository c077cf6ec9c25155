"""The timing wheel, driven by the event loop: it sleeps until the next bucket is due."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle

from barnabas.broker.waiting.timing_wheel import Timer, TimerTask


class LoopTimer(Timer):
    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__(int(loop.time() * 1_000))
        self._loop = loop
        self._wake_up: TimerHandle | None = None
        self._wake_up_ms = 0
        self._is_closed = False

    def add(self, task: TimerTask, delay_ms: int) -> None:
        # The wheels show the time of the last wake-up; a delay counts from now.
        self.now_ms = max(self.now_ms, int(self._loop.time() * 1_000))
        super().add(task, delay_ms)
        self._sleep_until_due()

    def close(self) -> None:
        """No task expires after this."""
        self._is_closed = True
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _sleep_until_due(self) -> None:
        due_ms = self.next_due_ms()
        if due_ms is None or self._is_closed:
            return
        if self._wake_up is not None:
            if self._wake_up_ms <= due_ms:
                return
            self._wake_up.cancel()
        self._wake_up_ms = due_ms
        self._wake_up = self._loop.call_at(due_ms / 1_000, self._on_due)

    def _on_due(self) -> None:
        self._wake_up = None
        # The time in seconds may round to the millisecond before the one that the loop was asked for.
        self.advance(max(int(self._loop.time() * 1_000), self._wake_up_ms))
        self._sleep_until_due()
