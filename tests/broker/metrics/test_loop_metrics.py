from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from barnabas.broker.metrics.loop_metrics import LoopMetrics
from barnabas.metrics.registry import Registry
from barnabas.net.busy_poll import BrokerEventLoop, new_event_loop


@pytest.mark.slow
def test_a_loop_is_idle_while_it_waits_and_not_while_it_works() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, BrokerEventLoop)
        metrics = LoopMetrics(loop, registry)
        begin_s, idle_s = loop.time(), loop.idle_s
        await asyncio.sleep(0.2)
        waited_s = loop.idle_s - idle_s
        assert 0.1 < waited_s <= loop.time() - begin_s
        idle_s = loop.idle_s
        end_s = time.monotonic() + 0.2
        while time.monotonic() < end_s:
            pass
        assert loop.idle_s == idle_s
        assert 0.0 < metrics.idle_ratio() < 1.0
        text = registry.render()
        assert "barnabas_eventloop_idle_ratio 0." in text
        assert "# TYPE barnabas_eventloop_idle_seconds_total counter" in text
        assert "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent 0." in text

    registry = Registry()
    for busy_poll_us in (0, 50):
        registry = Registry()
        with asyncio.Runner(loop_factory=partial(new_event_loop, busy_poll_us)) as runner:
            runner.run(main())
