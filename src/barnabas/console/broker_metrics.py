"""Rates and latencies from the metrics that brokers serve for Prometheus, where their addresses are known.

The names are those of Kafka's metrics as Barnabas serves them. A broker that does not answer, or has other names, gives
nothing; `problems` says why.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from barnabas.errors import InvalidConfig

TIMEOUT_S: Final = 3.0
ANSWER_BYTES_MAX: Final = 32 << 20
URLS_MAX: Final = 50
QUANTILE: Final = 0.99
BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
REQUESTS: Final = "kafka_network_requestmetrics_requests_total"
REQUEST_TIME: Final = "kafka_network_requestmetrics_totaltime_seconds_bucket"
# Series by the requests whose times they have; fetches wait for records, so theirs say how long consumers wait.
LATENCIES: Final = {"produce_p99_ms": ("Produce",), "fetch_p99_ms": ("Fetch", "FetchConsumer")}
_LINE: Final = re.compile(rf"({BYTES_IN}|{BYTES_OUT}|{REQUESTS}|{REQUEST_TIME})(?:\{{([^}}]*)\}})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Values = dict[tuple[str, str, str], float]
"""By the metric, the request, and the upper bound of a bucket."""


class BrokerMetrics:
    """Asks all brokers; the rates are those since the last question. For one thread."""

    def __init__(self, urls: Sequence[str]) -> None:
        if len(urls) > URLS_MAX:
            raise InvalidConfig(f"there are {len(urls)} addresses of metrics; the limit is {URLS_MAX}")
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https"):
                raise InvalidConfig(f"{url!r} is no address of metrics such as http://127.0.0.1:9404/metrics")
        self._urls = tuple(urls)
        self._last: dict[str, tuple[int, Values]] = {}
        self.problems: tuple[str, ...] = ()

    def sample(self, now_ms: int) -> dict[str, float]:
        """Values for the history; none at the first call."""
        deltas: Values = {}
        elapsed_s = 0.0
        problems = []
        for url in self._urls:
            try:
                new = _read(url)
            except (OSError, ValueError) as error:
                problems.append(f"metrics of {url}: {error}")
                self._last.pop(url, None)
                continue
            before_ms, old = self._last.get(url, (now_ms, {}))
            self._last[url] = (now_ms, new)
            elapsed_s = max(elapsed_s, (now_ms - before_ms) / 1000)
            # A counter that goes back is one of a broker that has started again.
            if all(new.get(key, 0.0) >= value for key, value in old.items()):
                for key, value in new.items():
                    if key in old:
                        deltas[key] = deltas.get(key, 0.0) + value - old[key]
        self.problems = tuple(problems)
        return _series(deltas, elapsed_s) if elapsed_s > 0 else {}


def _read(url: str) -> Values:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
    return parse_metrics(text)


def parse_metrics(text: str) -> Values:
    """The values that the console shows; those of single topics are left out."""
    values: Values = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        labels = dict(_LABEL.findall(found[2] or ""))
        if "topic" not in labels:
            key = (found[1], labels.get("request", ""), labels.get("le", ""))
            values[key] = values.get(key, 0.0) + float(found[3])
    return values


def _series(deltas: Values, elapsed_s: float) -> dict[str, float]:
    series: dict[str, float] = {}
    for name, metric in (("bytes_in", BYTES_IN), ("bytes_out", BYTES_OUT), ("requests", REQUESTS)):
        found = [value for (each, _, _), value in deltas.items() if each == metric]
        if found:
            series[f"{name}_per_second"] = sum(found) / elapsed_s
    for name, requests in LATENCIES.items():
        buckets: dict[float, float] = {}
        for (metric, request, bound), value in deltas.items():
            if metric == REQUEST_TIME and request in requests:
                buckets[float(bound)] = buckets.get(float(bound), 0.0) + value
        time_s = quantile(buckets, QUANTILE)
        if time_s is not None:
            series[name] = time_s * 1000
    return series


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """A quantile from counts up to bounds, as Prometheus computes it; None without counts."""
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    wanted = share * buckets[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / max(count - below, 1e-9)
        lower, below = bound, count
    return lower
