"""The console's search: a value that is there once, in 10 million records of 100 bytes.

The search is timed as a browser sees it, from the request to the event `end`, on local files and by fetching, with the
processor time of the console, its workers and the broker. Beside it, a producer measures how long acknowledgements take
while a search runs; and Apache Kafka's console consumer and kcat pipe the same records into grep, if they are there. At
last, Chromium opens pages of a cluster with many topics, finds a topic by typing and turns pages. Targets are for the
median; without Chromium these are not met.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from barnabas.testing import Broker, free_port
from bench.beside import tell
from bench.load import cpu_seconds
from bench.table import Table, verdict
from tests.console.chromium import find_chromium
from tests.interop import programs
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

RECORDS: Final = int(os.environ.get("BARNABAS_BENCH_RECORDS", "10000000"))
CHUNK_RECORDS: Final = 100_000
PARTITIONS: Final = 4
ROUNDS: Final = 3
NEEDLE: Final = "needle-7f3a90cd"
LOCAL_S_MAX: Final = 3.0
FETCH_S_MAX: Final = 8.0
TIMEOUT_S: Final = 600
PRODUCES: Final = 1_000
SLOWDOWN_MAX: Final = 2.0
TOPICS: Final = 1_000
TOPIC_PARTITIONS: Final = 10
TOPICS_AT_ONCE: Final = 100
PAINTS: Final = 5
PAINT_S_MAX: Final = 1.0
# A key in the search box, or the next page of the list: until the new rows are there.
KEY_S_MAX: Final = 0.3


def run() -> bool:
    with Broker(topics={"plain": PARTITIONS, "lz4": PARTITIONS}, log_segment_bytes=1 << 28) as broker:
        for topic, compression in (("plain", "none"), ("lz4", "lz4")):
            tell(f"producing {RECORDS:,} records of 100 bytes, {compression}")
            _fill(broker, topic, compression)
        table = Table(
            f"console: one value in {RECORDS:,} records of 100 bytes",
            ("search", "best", "median", "processor", "target", ""),
        )
        is_met = True
        for title, options, target_s in (
            ("local files", (), LOCAL_S_MAX),
            ("by fetching", ("--no-local-files",), FETCH_S_MAX),
        ):
            with ConsoleProcess(broker, options) as console:
                for topic, query in (
                    ("plain", NEEDLE),
                    ("plain", f"/{NEEDLE[:-4]}[0-9a-f]+/i"),
                    ("lz4", NEEDLE),
                ):
                    is_target = (topic, query) == ("plain", NEEDLE)
                    spent, processor_s = _rounds(console, topic, query, broker.pid)
                    met = not is_target or median(spent) <= target_s
                    is_met &= met
                    table.add(
                        f"{title}, {topic}, {'regex' if query.startswith('/') else 'text'}",
                        f"{min(spent):.2f} s",
                        f"{median(spent):.2f} s",
                        f"{processor_s:.2f} s",
                        f"≤ {target_s:g} s" if is_target else "",
                        verdict(met) if is_target else "",
                    )
        is_met &= _add_produce(table, broker)
        _add_grep(table, broker)
        _add_kcat(table, broker)
    is_met &= _add_pages(table)
    table.print()
    return is_met


def _fill(broker: Broker, topic: str, compression: str) -> None:
    """Values of hex digits; one of them has the needle."""
    with broker.producer(compression_type=compression, batch_size=65_536, linger_ms=20) as producer:
        for start in range(0, RECORDS, CHUNK_RECORDS):
            values = [
                b"%0100x" % (number * 0x9E3779B97F4A7C15) for number in range(start, start + CHUNK_RECORDS)
            ]
            if start <= RECORDS * 2 // 3 < start + CHUNK_RECORDS:
                values[CHUNK_RECORDS // 2] = NEEDLE.encode().ljust(100, b".")
            producer.send_many(topic, values, partition=start // CHUNK_RECORDS % PARTITIONS).result(TIMEOUT_S)


class ConsoleProcess:
    """A console as users run it; use it in a `with`."""

    def __init__(self, broker: Broker, options: tuple[str, ...], topic: str = "plain") -> None:
        self._topic = topic
        self.port = free_port()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "barnabas", "console", "-b", broker.bootstrap),
                *("--port", str(self.port), *options),
            ],
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                self.get("/api/overview")
                self.get(f"/api/topics/{self._topic}/records?limit=1")
                return self
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("the console did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
            return content

    def search(self, topic: str, query: str) -> dict[str, Any]:
        """The data of the last event."""
        text = self.get(f"/api/topics/{topic}/search?q={urllib.parse.quote(query)}").decode()
        assert text.count("event: hit") == 1, text[:2000]
        found: dict[str, Any] = json.loads(text.rstrip().rpartition("data: ")[2])
        assert found["reason"] == "complete", found
        assert found["records"] == RECORDS, found
        return found

    def processor_s(self) -> float:
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return cpu_seconds(pid) + sum(cpu_seconds(int(each)) for each in children)


def _rounds(console: ConsoleProcess, topic: str, query: str, broker_pid: int) -> tuple[list[float], float]:
    spent = []
    before_s = console.processor_s() + cpu_seconds(broker_pid)
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        console.search(topic, query)
        spent.append(time.perf_counter() - start_s)
        tell(f"{topic} {query}: {spent[-1]:.2f} s")
    return spent, (console.processor_s() + cpu_seconds(broker_pid) - before_s) / ROUNDS


def _add_produce(table: Table, broker: Broker) -> bool:
    """The 99th percentile of acknowledgements, without and with a search beside, in turns."""
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(_produce_p99_ms(broker))
        beside.append(_p99_beside_ms(broker))
        tell(f"produce p99: {alone[-1]:.2f} ms alone, {beside[-1]:.2f} ms beside searches")
    alone_ms, beside_ms = median(alone), median(beside)
    met = beside_ms < SLOWDOWN_MAX * alone_ms
    table.add("produce p99, alone", f"{min(alone):.2f} ms", f"{alone_ms:.2f} ms", "", "", "")
    table.add(
        f"produce p99, beside searches: {beside_ms / alone_ms:.1f}×",
        f"{min(beside):.2f} ms",
        f"{beside_ms:.2f} ms",
        "",
        f"< {SLOWDOWN_MAX:g}×",
        verdict(met),
    )
    return met


def _p99_beside_ms(broker: Broker) -> float:
    with ConsoleProcess(broker, ()) as console:
        port = console.port
        code = (
            "import urllib.request,sys\n"
            f"while True: urllib.request.urlopen('http://127.0.0.1:{port}/api/topics/lz4/search?q=nothing-here').read()"
        )
        searching = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        try:
            return _produce_p99_ms(broker)
        finally:
            searching.kill()
            searching.wait()


def _produce_p99_ms(broker: Broker) -> float:
    topic = f"acks-{time.monotonic_ns()}"
    broker.create_topics({topic: 1})
    spent = []
    with broker.producer(linger_ms=0) as producer:
        for number in range(PRODUCES):
            start_s = time.perf_counter()
            producer.send(topic, b"%0100d" % number).result(TIMEOUT_S)
            spent.append(time.perf_counter() - start_s)
            time.sleep(0.005)
    return sorted(spent)[PRODUCES * 99 // 100] * 1000


def _add_pages(table: Table) -> bool:
    """How long a browser waits for pages of a cluster with many topics, while the console already runs."""
    chromium = find_chromium()
    title = f"{TOPICS:,} topics × {TOPIC_PARTITIONS}"
    if chromium is None or importlib.util.find_spec("playwright") is None:
        table.add(
            f"{title}: needs Chromium and playwright", "", "", "", f"≤ {PAINT_S_MAX:g} s", verdict(False)
        )
        return False
    from playwright.sync_api import sync_playwright

    topics = {f"topic-{number:04d}": TOPIC_PARTITIONS for number in range(TOPICS)}
    is_met = True

    def add(what: str, spent: list[float], target_s: float) -> None:
        nonlocal is_met
        met = median(spent) <= target_s
        is_met &= met
        cells = (f"{min(spent):.2f} s", f"{median(spent):.2f} s", "", f"≤ {target_s:g} s", verdict(met))
        table.add(f"{title}, {what}", *cells)

    with Broker() as broker, sync_playwright() as driver:
        for start in range(0, TOPICS, TOPICS_AT_ONCE):
            broker.create_topics(dict(list(topics.items())[start : start + TOPICS_AT_ONCE]))
        with ConsoleProcess(broker, (), "topic-0000") as console:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            try:
                for path, text in (("/", "Healthy"), ("/topics", "topic-0049")):
                    add(
                        f"{path} shown",
                        [_painted_s(browser, console.port, path, text) for _ in range(PAINTS)],
                        PAINT_S_MAX,
                    )
                keys, turns = _used_s(browser, console.port)
                add("a key in the search box", keys, KEY_S_MAX)
                add("the next page", turns, KEY_S_MAX)
            finally:
                browser.close()
    return is_met


def _used_s(browser: Any, port: int) -> tuple[list[float], list[float]]:
    """How long each key of a name takes to show the topics with it, and each turn of a page."""
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{port}/#/topics")
    page.get_by_text("topic-0049").first.wait_for()
    keys, turns = [], []
    for number in range(1, 1 + PAINTS):
        start_s = time.perf_counter()
        page.get_by_role("button", name="Next").click()
        page.get_by_text(f"topic-{number * 50:04d}").first.wait_for()
        turns.append(time.perf_counter() - start_s)
    page.get_by_label("Find a topic").fill("topic-0")
    # Each digit leaves a tenth of the topics.
    for typed, count in (("9", 100), ("8", 10), ("7", 1)):
        start_s = time.perf_counter()
        page.keyboard.type(typed)
        page.get_by_role("caption").get_by_text(f"{count} topic").wait_for()
        keys.append(time.perf_counter() - start_s)
    page.close()
    return keys, turns


def _painted_s(browser: Any, port: int, path: str, text: str) -> float:
    """Until the content is there, in a browser without a cache."""
    context = browser.new_context()
    page = context.new_page()
    start_s = time.perf_counter()
    page.goto(f"http://127.0.0.1:{port}/#{path}")
    page.get_by_text(text).first.wait_for()
    spent_s = time.perf_counter() - start_s
    context.close()
    return spent_s


def _add_grep(table: Table, broker: Broker) -> None:
    """Kafka's console consumer, piped into grep."""
    try:
        libraries = jars(V4)
    except PeerUnavailable as error:
        tell(f"without kafka-console-consumer: {error}")
        return
    command = (
        f"java -Xmx512M -cp '{libraries}/*' org.apache.kafka.tools.consumer.ConsoleConsumer"
        f" --bootstrap-server {broker.bootstrap} --topic plain --from-beginning --max-messages {RECORDS}"
        f" --timeout-ms 60000 2>/dev/null | grep -c {NEEDLE}"
    )
    start_s = time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    spent_s = time.perf_counter() - start_s
    assert re.fullmatch(r"1\n", done.stdout), done
    table.add("kafka-console-consumer | grep", f"{spent_s:.2f} s", "", "", "", "")


def _add_kcat(table: Table, broker: Broker) -> None:
    """kcat (librdkafka), piped into grep."""
    try:
        program = " ".join(programs.kcat())
    except PeerUnavailable as error:
        tell(f"without kcat: {error}")
        return
    command = f"{program} -C -q -b {broker.bootstrap} -t plain -o beginning -e 2>/dev/null | grep -c {NEEDLE}"
    start_s = time.perf_counter()
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    spent_s = time.perf_counter() - start_s
    assert re.fullmatch(r"1\n", done.stdout), done
    table.add("kcat | grep", f"{spent_s:.2f} s", "", "", "", "")
