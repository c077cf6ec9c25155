"""The API on a real broker, without a browser."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.console.api import streams
from barnabas.console.api.openapi import document
from barnabas.console.api.routes import ROUTES
from barnabas.console.search import plan
from barnabas.testing import Broker
from tests.console.running import RunningConsole
from tests.waiting import wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "console-openapi.json"
START_MS = 1_700_000_000_000
NewTopic = Callable[..., str]


def fill(broker: Broker, topic: str, count: int = 20, partitions: int = 2, **settings: Any) -> None:
    """Record n has the time START_MS + n seconds, in partition n modulo their number."""
    with broker.producer(**settings) as producer:
        for number in range(count):
            producer.send(
                topic,
                json.dumps({"n": number, "user": {"name": f"u{number % 3}"}}).encode(),
                key=f"key-{number}".encode(),
                partition=number % partitions,
                timestamp_ms=START_MS + number * 1000,
                headers={"trace": f"t-{number}".encode()},
            )


def numbers(records: list[Any]) -> list[int]:
    return [json.loads(each["value"]["text"])["n"] for each in records]


def found(console: RunningConsole, topic: str, query: str, rest: str = "") -> list[int]:
    events = list(console.events(f"/api/topics/{topic}/search?q={quote(query)}{rest}"))
    assert events[-1][0] == "end", events
    return sorted(numbers([data for name, data in events if name == "hit"]))


def test_the_openapi_document_describes_the_routes(console: RunningConsole) -> None:
    served = console.get("/api/openapi.json")
    assert served == document()
    assert json.loads(DOCUMENT.read_text()) == served, "write it again: make console-docs"
    assert {(each.method.lower(), each.path.replace(":int", "").replace(":path", "")) for each in ROUTES} == {
        (method, path) for path, methods in served["paths"].items() for method in methods
    }


def test_overview_and_session(console: RunningConsole, broker: Broker) -> None:
    assert console.get("/api/session")["bootstrap"] == broker.bootstrap
    # The first snapshot has no offsets yet.
    now = wait_until(lambda: (found := console.get("/api/overview"))["gaps"] == [] and found)
    assert [each["id"] for each in now["brokers"]] == [1001]
    assert now["brokers"][0]["is_controller"]
    assert now["offline"] == now["under_replicated"] == 0


def test_a_topic_is_created_changed_and_deleted(console: RunningConsole) -> None:
    name = "made-here"
    body = {"name": name, "partitions": 2, "configs": {"retention.ms": "60000"}}
    assert console.change("POST", "/api/topics", body)["partitions"] == 2
    assert console.ask("POST", "/api/topics", body).json()["error"] == "TOPIC_ALREADY_EXISTS"
    [listed] = console.get("/api/topics?search=MADE")["topics"]
    assert (listed["name"], listed["partitions"], listed["is_healthy"]) == (name, 2, True)
    assert (listed["cleanup_policy"], listed["retention_ms"]) == ("delete", 60_000)
    console.change("POST", f"/api/topics/{name}/partitions", {"count": 3})
    assert console.get(f"/api/topics/{name}")["partition_count"] == 3

    path = f"/api/configs/topic/{name}"
    configs = {each["name"]: each for each in console.get(path)["configs"]}
    assert configs["retention.ms"]["value"] == "60000"
    assert configs["retention.ms"]["default"] == "log.retention.hours=168"
    assert configs["retention.ms"]["documentation"]
    console.change("PATCH", path, {"configs": {"retention.ms": None, "segment.bytes": "2000000"}})
    configs = {each["name"]: each for each in console.get(path)["configs"]}
    assert configs["retention.ms"]["source"] != "DYNAMIC_TOPIC_CONFIG"
    assert configs["segment.bytes"]["value"] == "2000000"
    [listed] = console.get("/api/topics?search=MADE")["topics"]
    assert listed["retention_ms"] != 60_000
    refused = console.ask("PATCH", path, {"configs": {"segment.bytes": "a lot"}})
    assert (refused.status, refused.json()["error"]) == (400, "INVALID_CONFIG")

    assert console.ask("DELETE", f"/api/topics/{name}", {"confirm": "other"}).status == 400
    console.change("DELETE", f"/api/topics/{name}", {"confirm": name})
    assert console.get("/api/topics?search=made-here")["total"] == 0
    assert console.ask("GET", f"/api/topics/{name}").status == 404


def test_topics_are_paged_and_sorted(console: RunningConsole, new_topic: NewTopic, broker: Broker) -> None:
    names = sorted(new_topic(partitions=count) for count in (1, 2, 3))
    fill(broker, names[0], count=5, partitions=1)
    console.change("POST", "/api/topics", {"name": "zz-refreshes"})
    page = console.get("/api/topics?size=2&page=0&sort=partitions&descending=1")
    assert page["topics"][0]["partitions"] >= page["topics"][1]["partitions"]
    everything = [
        each["name"]
        for number in range((page["total"] + 1) // 2)
        for each in console.get(f"/api/topics?size=2&page={number}")["topics"]
    ]
    assert everything == sorted(everything)
    assert set(names) <= set(everything)
    assert len(everything) == page["total"]
    assert console.ask("GET", "/api/topics?size=5000").status == 400
    assert console.ask("GET", "/api/topics?sort=colour").status == 400


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_pages_of_records(console: RunningConsole, broker: Broker, new_topic: NewTopic, order: str) -> None:
    topic = new_topic()
    fill(broker, topic)
    path = f"/api/topics/{topic}/records?limit=7&order={order}"
    read, cursor = [], ""
    for _ in range(10):
        page = console.get(path + cursor)
        read += numbers(page["records"])
        if page["cursor"] is None:
            break
        cursor = f"&cursor={quote(page['cursor'])}"
    assert read == (list(range(20)) if order == "oldest" else list(range(19, -1, -1)))


def test_records_from_an_offset_a_time_and_of_a_partition(
    console: RunningConsole, broker: Broker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(broker, topic)
    path = f"/api/topics/{topic}/records?order=oldest"
    assert numbers(console.get(f"{path}&partition=1&start_offset=7")["records"]) == [15, 17, 19]
    assert numbers(console.get(f"{path}&start_ms={START_MS + 17_000}")["records"]) == [17, 18, 19]
    assert numbers(console.get(f"{path}&end_ms={START_MS + 2_000}")["records"]) == [0, 1]
    [record] = console.get(f"{path}&partition=0&start_offset=3&limit=1")["records"]
    assert record["key"] == {"size": 5, "text": "key-6"}
    assert record["headers"] == [{"name": "trace", "value": {"size": 3, "text": "t-6"}}]
    assert console.get(f"/api/topics/{topic}/records/0/3") == record
    assert console.ask("GET", f"/api/topics/{topic}/records/0/10").status == 404
    assert (
        console.ask("GET", f"{path}&partition=9")
        .json()["message"]
        .startswith(f"topic {topic} has no partition 9")
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["files", "fetching"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_search(
    console: RunningConsole,
    fetching_console: RunningConsole,
    broker: Broker,
    new_topic: NewTopic,
    source: str,
    compression: str,
) -> None:
    topic = new_topic()
    fill(broker, topic, compression_type=compression)
    used = console if source == "files" else fetching_console
    assert found(used, topic, "key=key-7") == [7]
    assert found(used, topic, "$.user.name=u1 $.n>12") == [13, 16, 19]
    assert found(used, topic, "header.trace=t-11") == [11]
    assert found(used, topic, "/key-1[0-3]/") == [10, 11, 12, 13]
    assert found(used, topic, "t-1", "&partition=0&start_offset=5") == [10, 12, 14, 16, 18]
    assert found(used, topic, "", f"&start_ms={START_MS + 3_000}&end_ms={START_MS + 6_000}") == [3, 4, 5]
    assert found(used, topic, "nothing-like-this") == []
    events = list(used.events(f"/api/topics/{topic}/search?q=key&limit=3"))
    assert [name for name, _ in events].count("hit") == 3
    assert events[-1][1]["reason"] == "limit"
    planned = dict(events)["plan"]
    assert planned["local_partitions"] == (2 if source == "files" else 0)
    assert planned["partitions"] == 2


@pytest.mark.parametrize("source", ["files", "fetching"])
def test_a_search_that_stops_at_its_limit_has_the_newest_hits(
    console: RunningConsole,
    fetching_console: RunningConsole,
    broker: Broker,
    new_topic: NewTopic,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over several segments and pieces, and partitions whose records are of different times."""
    monkeypatch.setattr(plan, "PIECE_BYTES", 200_000)
    monkeypatch.setattr(plan, "FETCHED_PIECE_BYTES", 200_000)
    topic = new_topic(partitions=3)
    console.change(
        "PATCH",
        f"/api/configs/topic/{topic}",
        {"configs": {"segment.bytes": "1048576", "index.interval.bytes": "1"}},
    )
    with broker.producer(linger_ms=0) as producer:
        for number in range(300):
            # The first partition has the oldest third of the records, the last one the newest.
            producer.send(
                topic,
                json.dumps({"n": number}).encode().ljust(14_000),
                partition=number // 100,
                timestamp_ms=START_MS + number,
            )
            if number % 5 == 4:
                producer.flush()
    used = console if source == "files" else fetching_console
    for limit, order in ((1, "newest"), (130, "newest"), (130, "oldest")):
        events = list(used.events(f"/api/topics/{topic}/search?q=n&limit={limit}&order={order}"))
        assert (events[-1][1]["reason"], events[-1][1]["hits"]) == ("limit", limit)
        # Hits that were sent early may be followed by better ones.
        hits = sorted(numbers([data for name, data in events if name == "hit"]), reverse=order == "newest")
        assert hits[:limit] == (list(range(300)) if order == "oldest" else list(range(299, -1, -1)))[:limit]
    answer = used.ask("GET", f"/api/topics/{topic}/download?limit=130")
    assert numbers([json.loads(line) for line in answer.body.splitlines()]) == list(range(170, 300))


@pytest.mark.parametrize("source", ["files", "fetching"])
def test_aborted_records_are_left_out_if_asked(
    console: RunningConsole,
    fetching_console: RunningConsole,
    broker: Broker,
    new_topic: NewTopic,
    source: str,
) -> None:
    topic = new_topic(partitions=1)
    with broker.producer(transactional_id=f"id-{topic}") as producer:
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, json.dumps({"n": number}).encode()).result()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    used = console if source == "files" else fetching_console
    assert found(used, topic, "") == [0, 1, 2, 3]
    assert found(used, topic, "n", "&committed=1") == [0, 2]
    assert numbers(used.get(f"/api/topics/{topic}/records?committed=1&order=oldest")["records"]) == [0, 2]
    [listed] = [
        each
        for each in used.get("/api/transactions")["transactions"]
        if each["transactional_id"] == f"id-{topic}"
    ]
    assert listed["state"] in ("CompleteAbort", "CompleteCommit")
    fenced = used.change("POST", f"/api/transactions/id-{topic}/fence", {"confirm": f"id-{topic}"})
    assert fenced["producer_id"] == listed["producer_id"]
    assert used.get(f"/api/topics/{topic}/producers")["total"] >= 1


def test_a_query_that_cannot_be_read_is_refused(console: RunningConsole, new_topic: NewTopic) -> None:
    answer = console.ask("GET", f"/api/topics/{new_topic()}/search?q={quote('/a(b/')}")
    assert answer.status == 400
    assert "missing )" in answer.json()["message"]


def test_records_are_sent(console: RunningConsole, new_topic: NewTopic) -> None:
    topic = new_topic()
    body = {
        "key": {"text": "ключ"},
        "value": {"base64": "AAH/"},
        "headers": [{"name": "a", "value": {"text": "b"}}, {"name": "none", "value": None}],
        "partition": 1,
    }
    sent = console.change("POST", f"/api/topics/{topic}/records", body)
    assert (sent["partition"], sent["offset"]) == (1, 0)
    record = console.get(f"/api/topics/{topic}/records/1/0")
    assert record["key"] == {"size": 8, "text": "ключ"}
    assert record["value"] == {"size": 3, "base64": "AAH/"}
    assert record["headers"] == [
        {"name": "a", "value": {"size": 1, "text": "b"}},
        {"name": "none", "value": None},
    ]
    tombstone = console.change("POST", f"/api/topics/{topic}/records", {"key": {"text": "k"}, "value": None})
    again = console.get(f"/api/topics/{topic}/records/{tombstone['partition']}/{tombstone['offset']}")
    assert again["value"] is None
    for bad in (
        {"value": 7},
        {"value": {"base64": "?"}},
        {"headers": "x"},
        {"partition": -1},
        {"partition": True},
    ):
        assert console.ask("POST", f"/api/topics/{topic}/records", bad).status == 400
    assert console.ask("POST", "/api/topics/no-such-topic/records", {"value": None}).status == 404


def test_downloads(
    console: RunningConsole, broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "DOWNLOAD_PREVIEW_BYTES", 1_000)
    topic = new_topic()
    fill(broker, topic)
    with broker.producer() as producer:
        producer.send(topic, b"=1+1", key=b"formula", partition=0, timestamp_ms=START_MS)
        producer.send(topic, b"x" * 2_000, key=b"long", partition=0, timestamp_ms=START_MS)
    answer = console.ask("GET", f"/api/topics/{topic}/download?q=key-1")
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.jsonl"'
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert numbers(lines) == [10, 12, 14, 16, 18, 1, 11, 13, 15, 17, 19]
    text = console.ask("GET", f"/api/topics/{topic}/download?format=csv&partition=0").body.decode()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["partition", "offset", "timestamp_ms", "key", "value", "headers", "cut"]
    assert [row[1] for row in rows[1:]] == [str(each) for each in range(12)]
    assert rows[-2][4:] == ["'=1+1", "", ""]
    assert (len(rows[-1][4]), rows[-1][6]) == (1_000, "value")


def test_a_download_says_if_it_is_not_complete(
    console: RunningConsole, broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    fill(broker, topic)
    monkeypatch.setattr(streams, "DOWNLOAD_RECORDS_MAX", 5)
    *lines, last = console.ask("GET", f"/api/topics/{topic}/download").body.splitlines()
    assert numbers([json.loads(line) for line in lines]) == [0, 2, 4, 6, 8]
    assert "limit of 5 records" in json.loads(last)["incomplete"]
    text = console.ask("GET", f"/api/topics/{topic}/download?format=csv").body.decode()
    assert text.splitlines()[-1].startswith("# this file is not complete: it ends at the limit of 5 records")
    # The newest ones of all partitions, in the order of partitions and offsets; nothing more was asked for.
    answer = console.ask("GET", f"/api/topics/{topic}/download?limit=5")
    assert numbers([json.loads(line) for line in answer.body.splitlines()]) == [16, 18, 15, 17, 19]
    monkeypatch.setattr(streams, "DOWNLOAD_RECORDS_MAX", 100_000)
    assert console.ask("GET", f"/api/topics/{topic}/download?limit=20000").status == 400


def test_a_partition_that_cannot_be_read_is_named(
    console: RunningConsole, broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search must not say that it has seen all records, and a page not that there are no more."""
    topic = new_topic()
    fill(broker, topic)
    describe = Admin.describe_topics

    def describe_without_leader(self: Admin, *names: Any, **options: Any) -> Any:
        described = describe(self, *names, **options)
        if topic in described:
            first, second = described[topic].partitions
            partitions = (replace(first, leader=None), second)
            described = {**described, topic: replace(described[topic], partitions=partitions)}
        return described

    monkeypatch.setattr(Admin, "describe_topics", describe_without_leader)
    events = list(console.events(f"/api/topics/{topic}/search?q=key-1"))
    warnings = [data["message"] for name, data in events if name == "warning"]
    assert warnings == [f"{topic}-0 cannot be read: it has no leader"]
    assert events[-1][1]["reason"] == "error"
    assert console.get(f"/api/topics/{topic}/records")["warnings"] == warnings
    *_, last = console.ask("GET", f"/api/topics/{topic}/download").body.splitlines()
    assert "has no leader" in json.loads(last)["incomplete"]


def test_a_tail_shows_new_records_and_counts_those_it_drops(
    console: RunningConsole, broker: Broker, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(broker, topic)
    seen, shown, dropped = 0, [], 0
    count = 3_000
    is_open = threading.Event()

    def produce() -> None:
        is_open.wait(60)
        with broker.producer() as producer:
            producer.send_many(topic, [b"new-%d" % number for number in range(count)]).result(60)

    thread = threading.Thread(target=produce)
    thread.start()
    events = console.events(f"/api/topics/{topic}/tail?q=new")
    for name, data in events:
        if name == "ready":
            is_open.set()
        else:
            seen, dropped = data["seen"], data["dropped"]
            shown += data["records"]
        if seen == count:
            break
    events.close()  # type: ignore[attr-defined]
    thread.join()
    assert len(shown) + dropped == count
    assert 0 < len(shown) < count
    assert all(each["value"]["text"].startswith("new-") for each in shown)


def test_groups(console: RunningConsole, broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(broker, topic)
    group = f"team/{topic}"
    with broker.consumer(group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 20:
            read += len(consumer.poll(1000))
        consumer.commit()
        active = console.get(f"/api/groups/{quote(group, safe='')}")
        assert len(active["members"]) == 1
        refused = console.ask(
            "POST", f"/api/groups/{quote(group)}/reset", {"to": "earliest", "execute": True}
        )
        assert refused.json()["error"] == "NON_EMPTY_GROUP"
    path = f"/api/groups/{quote(group, safe='')}"
    assert console.get(path)["lag"] == 0
    preview = console.change("POST", f"{path}/reset", {"to": "shift", "value": -4})
    assert [each["new_offset"] for each in preview["offsets"]] == [6, 6]
    assert not preview["executed"]
    assert console.get(path)["lag"] == 0
    console.change("POST", f"{path}/reset", {"to": "time", "value": START_MS + 10_000, "execute": True})
    assert console.get(path)["lag"] == 10
    console.change(
        "POST", f"{path}/reset", {"to": "earliest", "topic": topic, "partitions": [1], "execute": True}
    )
    assert console.get(path)["lag"] == 15
    [listed] = console.get(f"/api/groups?search={topic}")["groups"]
    assert listed["lag"] == 15
    assert console.get(f"/api/topics/{topic}")["groups"][0]["lag"] == 15
    names = [f"lag:{group}:{topic}-{number}" for number in range(2)]
    series = console.get(f"/api/history?series={quote(chr(10).join(names))}")["series"]
    assert [series[each][-1] for each in names] == [5, 10]
    assert console.ask("POST", f"{path}/reset", {"to": "nowhere"}).status == 400

    offsets = console.get("/api/topics/__consumer_offsets/records?limit=100")["records"]
    kinds = {each["decoded"]["type"] for each in offsets if "decoded" in each}
    assert {"OffsetCommit", "GroupMetadata"} <= kinds
    assert any(each["decoded"]["key"].get("group") == group for each in offsets if "decoded" in each)

    console.change("DELETE", path, {"confirm": group})
    assert console.get(f"/api/groups?search={topic}")["total"] == 0


def test_the_cluster(console: RunningConsole, broker: Broker) -> None:
    [directory] = console.get("/api/log-dirs")["directories"]
    assert directory["path"] == str(broker.directory)
    assert console.get("/api/reassignments") == {"moves": []}
    with broker.admin() as admin:
        admin.alter_quotas({(("client-id", "loader"),): {"producer_byte_rate": 1000.0}})
    assert console.get("/api/quotas")["quotas"] == [
        {"entity": [{"type": "client-id", "name": "loader"}], "values": {"producer_byte_rate": 1000.0}}
    ]
    assert console.get("/api/configs/broker/1001")["configs"]
    wait_until(lambda: console.get("/api/history")["times_ms"], "the first sample")
    history = console.get("/api/history?series=request_ms%0Alag%0Anot-measured")
    assert set(history["series"]) == {"request_ms", "lag"}
    assert len(history["times_ms"]) == len(history["series"]["lag"])
