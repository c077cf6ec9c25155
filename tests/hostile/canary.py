"""A client that minds its own business: it produces and fetches all the while, and says whether it was disturbed."""

from __future__ import annotations

import itertools
import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.clients.broker_process import BrokerProcess

_numbers: Final = itertools.count(1)


class Canary:
    """`longest_s` is the longest that a record took to be produced and fetched."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._topic = f"canary-{next(_numbers)}"
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="canary")
        self.rounds = 0
        self.longest_s = 0.0

    def __enter__(self) -> Self:
        with self._broker.client("canary") as client:
            create_topic(client, self._topic)
        self._thread.start()
        # What is done to the broker from now on must not keep the canary from connecting: that is not its business.
        while self.rounds == 0 and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # One round at least goes by after whatever was done to the broker.
        seen = self.rounds
        while kind is None and self.rounds < seen + 2 and self._thread.is_alive():
            time.sleep(0.01)
        self._is_over.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise AssertionError(f"the canary was disturbed in round {self.rounds}") from self._failure

    def _run(self) -> None:
        try:
            with self._broker.client("canary") as client:
                while not self._is_over.wait(0.005):
                    began_s = time.monotonic()
                    value = b"%d" % self.rounds
                    answer = produce(client, self._topic, batch(value), acks=-1)
                    assert (answer.error_code, answer.base_offset) == (0, self.rounds), answer
                    found = fetch(client, self._topic, self.rounds)
                    assert (found.error_code, values(found.records)) == (0, [value]), found
                    self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                    self.rounds += 1
        except BaseException as error:
            self._failure = error
