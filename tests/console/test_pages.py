"""The pages in a real Chromium, on a real broker."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.console.server import Login
from barnabas.errors import NONE, KafkaError
from barnabas.model import TopicPartition
from barnabas.spark.pipeline.journal import Journal
from barnabas.spark.pipeline.progress import BatchReport
from barnabas.spark.pipeline.watch import WatchedPipelines
from barnabas.testing import Broker
from barnabas.views.reassignment import throttle_changes
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, produce_request
from tests.console import changes
from tests.console.changes import SCRIPT
from tests.console.chromium import opened_page, running_chromium
from tests.console.running import RunningConsole
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

pytestmark = pytest.mark.slow

PIPELINE = """
name = "revenue"
checkpoint = "{folder}/checkpoint"
kafka = {{ "bootstrap.servers" = "{bootstrap}" }}
dead_letters = {{ topic = "orders-bad" }}

[sources.orders]
type = "topic"
topics = "orders"
format = {{ kind = "json", schema = "id BIGINT" }}

[[transforms]]
name = "counts"
sql = "SELECT count(*) AS value FROM orders"

[sink]
type = "topic"
topic = "revenue"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as running:
        yield running


# As long as the broker: parallel runs come back to this module while the same broker still runs.
@pytest.fixture(scope="package")
def filled(broker: Broker) -> Broker:
    """The broker with a topic, a group that has read half of it, and a transaction."""
    broker.create_topics({"orders": 3})
    with broker.producer() as producer:
        for number in range(60):
            producer.send(
                "orders",
                json.dumps({"id": number, "user": f"u{number % 3}"}).encode(),
                key=f"order-{number}".encode(),
                partition=number % 3,
                headers={"trace": f"t-{number}".encode()},
            )
    with broker.consumer(group_id="billing", auto_offset_reset="earliest", max_poll_records=30) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.poll(1000):
            pass
        consumer.commit()
    broker.create_topics({"orders-bad": 1})
    with broker.producer() as producer:
        origin = {"__barnabas.errors.topic": b"orders", "__barnabas.errors.message": b"not JSON"}
        producer.send("orders-bad", b"{", key=b"lost", headers=origin)
    with broker.admin() as admin:
        admin.set_scram_password("carol", "secret")
    with broker.producer(transactional_id="till-1") as producer:
        producer.begin_transaction()
        producer.send("orders", b"{}", key=b"transactional")
        producer.commit_transaction()
    return broker


@pytest.fixture(scope="module")
def console(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """Looks at the cluster often, so that a test need not wait for what it shows."""
    pipelines = watched_pipelines(broker, tmp_path_factory.mktemp("pipelines"))
    with RunningConsole(broker.bootstrap, sample_interval_s=1.0, pipelines=pipelines) as running:
        yield running


def watched_pipelines(broker: Broker, folder: Path) -> WatchedPipelines:
    """A pipeline that has written two batches and has failed."""
    file = folder / "revenue.toml"
    file.write_text(PIPELINE.format(folder=folder, bootstrap=broker.bootstrap))
    with Journal(str(folder / "checkpoint")) as journal:
        for number in range(2):
            journal.note(
                BatchReport(
                    pipeline="revenue",
                    query="revenue",
                    batch_id=number,
                    timestamp=f"2026-01-31T12:00:0{number}.000Z",
                    rows=10,
                    batch_ms=500,
                    rows_per_second=20.0,
                    lag=3,
                    state_rows=7,
                    state_bytes=4096,
                    watermark=None,
                )
            )
    journal.__exit__(None, RuntimeError(f"no more disk {SCRIPT}"), None)
    return WatchedPipelines([file])


@pytest.fixture
def page(browser: Browser, filled: Broker, console: RunningConsole) -> Iterator[Page]:
    with opened_page(browser) as (opened, faults):
        yield opened
        assert not faults
        assert opened.evaluate("window.hacked") is None


def go(page: Page, console: RunningConsole, path: str) -> None:
    page.goto(f"{console.address}/#{path}")


# What a screen reader finds on each page.
HEARD = Path(__file__).parents[1] / "data" / "console" / "pages-aria.json"
PAGES = {
    "/": "Overview",
    "/metrics": "Metrics",
    "/topics": "Topics",
    "/topics/orders": "orders",
    "/topics/orders/messages": "orders",
    "/topics/orders/settings": "orders",
    "/topics/orders/consumers": "orders",
    "/topics/orders/producers": "orders",
    "/groups": "Consumer groups",
    "/groups/billing": "billing",
    "/transactions": "Transactions",
    "/cluster": "Cluster",
    "/access": "Access",
    "/pipelines": "Pipelines",
    "/pipelines/revenue": "revenue",
}
# A part of what each page must say.
CONTENT = {
    "/": "controller",
    "/metrics": "Groups with the largest lag",
    "/topics": "orders",
    "/topics/orders": "End offset",
    "/topics/orders/messages": "order-59",
    "/topics/orders/settings": "retention.ms",
    "/topics/orders/consumers": "billing",
    "/topics/orders/producers": "Last sequence",
    "/groups": "billing",
    "/groups/billing": "Partitions that the group reads",
    "/transactions": "till-1",
    "/cluster": "Log directories",
    "/access": "carol",
    "/pipelines": "no more disk",
    "/pipelines/revenue": "Partitions that the pipeline reads",
}


@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_shows_its_content_and_names_its_controls(
    browser: Browser, filled: Broker, console: RunningConsole, width: int
) -> None:
    with opened_page(browser, width=width) as (page, faults):
        heard = changes.look_at_pages(page, console, PAGES, CONTENT, width)
        assert not faults
    if width < 1280:
        return
    if os.environ.get("BARNABAS_GOLDEN"):
        HEARD.write_text(json.dumps(heard, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    stored = json.loads(HEARD.read_text(encoding="utf-8"))
    # Other tests may have added users or groups, whose buttons are here too.
    lost = {path: sorted(set(lines) - set(heard[path])) for path, lines in stored.items()}
    assert not any(lost.values()), f"{lost} is gone; if that is right, run the test with BARNABAS_GOLDEN=1"


def test_a_search_by_keyboard(page: Page, console: RunningConsole) -> None:
    go(page, console, "/topics/orders/messages")
    page.get_by_text("order-59").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("$.user=u1 key:order-1")
    page.keyboard.press("Enter")
    page.get_by_text("All records searched: 5 hits in 61 records").wait_for()
    keys = page.locator("tbody tr td.key").all_inner_texts()
    assert sorted(keys) == ["order-1", "order-10", "order-13", "order-16", "order-19"]
    assert "q=%24.user" in page.url
    page.reload()
    page.get_by_text("All records searched: 5 hits").wait_for()
    details = page.get_by_role("button", name="Details of partition 1 offset 0")
    details.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Value", exact=True).get_by_text('"id": 1').wait_for()
    page.get_by_text("t-1", exact=True).wait_for()
    page.get_by_label("Format").select_option("hex")
    page.get_by_text("00000000  6f 72 64 65 72 2d 31").first.wait_for()
    page.locator("main").press("?")
    page.get_by_role("dialog", name="Help").wait_for()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_a_search_that_cannot_be_read(page: Page, console: RunningConsole) -> None:
    go(page, console, "/topics/orders/messages?q=%2Fa(b%2F")
    page.get_by_text("is not a regular expression of RE2").wait_for()


def test_a_topic_is_created_used_and_deleted(page: Page, console: RunningConsole) -> None:
    changes.use_topic(page, console)


def test_settings_of_a_broker(page: Page, console: RunningConsole) -> None:
    changes.change_broker_settings(page, console)


def test_a_group_is_deleted(page: Page, console: RunningConsole, filled: Broker) -> None:
    with filled.admin() as admin:
        admin.alter_group_offsets("gone", {("orders", 0): 0})  # type: ignore[dict-item]
    changes.delete_group(page, console, "gone")


def test_a_producer_is_fenced(page: Page, console: RunningConsole, filled: Broker) -> None:
    with filled.producer(transactional_id="till-2") as producer:
        producer.begin_transaction()
        producer.send("orders", b"{}").result(60)
        changes.fence(page, console, "till-2")
        with pytest.raises(KafkaError):
            producer.commit_transaction()


def test_a_hanging_transaction_is_aborted(browser: Browser) -> None:
    """One that no coordinator knows, as brokers without verification accept it."""
    records = batch(b"a", producer_id=77_000, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce_request("hung", records, acks=-1)
    request.transactional_id = "forgotten"
    with (
        Broker(topics={"hung": 1}, transaction_partition_verification_enable="false") as broker,
        RunningConsole(broker.bootstrap) as console,
        opened_page(browser) as (page, faults),
    ):
        with RawClient(int(broker.bootstrap.rpartition(":")[2])) as client:
            assert client.ask("Produce", 9, request).responses[0].partition_responses[0].error_code == NONE
        go(page, console, "/topics/hung/producers")
        page.get_by_text("from offset 0").wait_for()
        page.get_by_role("button", name="Abort").click()
        page.get_by_text("Consumers of committed records continue after it.").wait_for()
        page.get_by_role("dialog").get_by_role("button", name="Abort").click()
        page.get_by_role("cell", name="from offset 0").wait_for(state="detached")
        assert not faults


def test_offsets_are_reset_after_a_preview(page: Page, console: RunningConsole) -> None:
    go(page, console, "/groups/billing")
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("Move to").select_option("latest")
    page.get_by_role("button", name="Preview, then apply").click()
    page.get_by_text("Nothing has changed yet.").wait_for()
    page.get_by_role("button", name="Preview, then apply").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.locator(".card", has_text="Lag").get_by_text("0", exact=True).wait_for()


def test_a_live_tail_shows_what_it_drops(page: Page, console: RunningConsole, filled: Broker) -> None:
    filled.create_topics({"busy": 1})
    go(page, console, "/topics/busy/messages?from=tail")
    page.get_by_text("Live: 0 records seen").wait_for()

    def produce() -> None:
        with filled.producer() as producer:
            producer.send_many("busy", [b"event-%d" % number for number in range(5_000)]).result(60)

    thread = threading.Thread(target=produce)
    thread.start()
    page.get_by_text("Live: 5,000 records seen").wait_for()
    page.get_by_text("more were dropped to keep up").wait_for()
    assert page.locator("tbody tr").count() <= 200
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    thread.join()


def focused(page: Page) -> str:
    name: str = page.evaluate(
        "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    )
    return name


def test_the_focus_stays_where_it_is(page: Page, console: RunningConsole, filled: Broker) -> None:
    """A page that is drawn again does not take the focus from someone who uses the keyboard."""
    go(page, console, "/topics")
    page.get_by_role("button", name="Records", exact=True).focus()
    page.keyboard.press("Enter")
    page.locator("th[aria-sort=descending]", has_text="Records").wait_for()
    assert focused(page).startswith("Records")
    assert page.locator("[aria-live] table").count() == 0

    filled.create_topics({"slow": 1})
    go(page, console, "/topics/slow/messages?from=tail")
    page.get_by_text("Live: 0 records seen").wait_for()
    with filled.producer() as producer:
        for number in range(3):
            producer.send("slow", b"event").result(60)
            page.get_by_text(f"Live: {number + 1} records seen").wait_for()
            if number == 0:
                page.get_by_role("button", name="Details of").focus()
                page.keyboard.press("Enter")
            page.get_by_label("Value", exact=True).wait_for()
            assert focused(page) == "Details of partition 0 offset 0"
    assert page.locator("tbody tr").count() == 4


def test_a_proxy_that_names_nobody(browser: Browser, filled: Broker) -> None:
    """The form for users of the cluster would be of no use."""
    with (
        RunningConsole(filled.bootstrap, login=Login(kind="proxy")) as console,
        opened_page(browser) as (page, faults),
    ):
        go(page, console, "/topics")
        page.get_by_role("heading", level=1, name="You are not logged in").wait_for()
        assert "X-Forwarded-User".lower() in page.get_by_role("alert").inner_text().lower()
        assert page.get_by_label("Password").count() == 0
        assert not faults


def test_a_group_with_a_hostile_name(page: Page, console: RunningConsole, filled: Broker) -> None:
    group = f"a/b?{SCRIPT}"
    with filled.admin() as admin:
        admin.alter_group_offsets(group, {("orders", 0): 0})  # type: ignore[dict-item]
    go(page, console, "/groups")
    page.get_by_label("Find a group").fill("a/b")
    page.get_by_role("link", name="a/b").click()
    page.get_by_role("heading", level=1, name="<script>").wait_for()
    page.get_by_text("Partitions that the group reads").wait_for()


def test_a_read_only_console_offers_no_changes(browser: Browser, filled: Broker) -> None:
    with (
        RunningConsole(filled.bootstrap, is_read_only=True) as console,
        opened_page(browser) as (page, faults),
    ):
        for path in (
            "/topics",
            "/topics/orders",
            "/topics/orders/messages",
            "/groups/billing",
            "/transactions",
            "/cluster",
            "/access",
        ):
            go(page, console, path)
            page.get_by_text("read-only").wait_for()
            page.get_by_text(CONTENT[path]).first.wait_for()
            for name in ("Create", "Delete", "Produce", "Reset", "Add", "Fence", "Move", "Password", "Send"):
                assert page.get_by_role("button", name=name).count() == 0, (path, name)
        assert not faults


def test_users_and_quotas_are_changed(page: Page, console: RunningConsole) -> None:
    go(page, console, "/access")
    page.get_by_role("button", name="Create user").click()
    page.get_by_label("Name", exact=True).fill("dave")
    page.get_by_label("Password", exact=True).fill("secret")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("button", name="Change the password of dave").click()
    page.get_by_label("Password", exact=True).fill("other")
    page.get_by_role("button", name="Change", exact=True).last.click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.get_by_role("button", name="Delete dave for SCRAM-SHA-512").click()
    page.get_by_label("Type dave to confirm").fill("dave")
    page.get_by_role("button", name="Delete", exact=True).last.click()
    page.get_by_role("cell", name="dave", exact=True).wait_for(state="detached")
    # This broker has no authorizer, and says so.
    page.get_by_text("authorizer").wait_for()

    go(page, console, "/cluster")
    page.get_by_role("button", name="Add quota").click()
    page.get_by_label("User", exact=True).fill("erin")
    page.get_by_label("producer_byte_rate").fill("1000000")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("producer_byte_rate=1000000").wait_for()
    page.get_by_role("button", name="Change the quotas of user erin").click()
    page.get_by_label("producer_byte_rate").fill("")
    page.get_by_role("button", name="Change", exact=True).last.click()
    page.get_by_role("cell", name="user erin", exact=True).wait_for(state="detached")
    assert all(each["entity"][0]["name"] != "erin" for each in console.get("/api/quotas")["quotas"])


def test_replicas_are_moved(page: Page, console: RunningConsole) -> None:
    go(page, console, "/topics/orders")
    page.get_by_role("button", name="Move the replicas of partition 1").click()
    page.get_by_label("Broker ids").fill("99")
    page.get_by_role("button", name="Move", exact=True).last.click()
    page.get_by_role("dialog").get_by_text("99").first.wait_for()
    (broker,) = console.get("/api/overview")["brokers"]
    page.get_by_label("Broker ids").fill(str(broker["id"]))
    page.get_by_role("button", name="Move", exact=True).last.click()
    page.get_by_role("dialog").wait_for(state="detached")


def test_a_pipeline_and_its_dead_letters(page: Page, console: RunningConsole) -> None:
    go(page, console, "/pipelines")
    page.get_by_role("link", name="revenue").click()
    page.get_by_role("alert").get_by_text("no more disk").wait_for()
    page.get_by_role("img", name="orders to counts, counts to sink, orders to dead letters").wait_for()
    page.locator(".card", has_text="Batch time").get_by_text("500 ms").wait_for()
    page.locator(".card", has_text="state").get_by_text("7 (4.0 KiB)").wait_for()
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("button", name="Details of").click()
    page.get_by_text("not JSON").wait_for()
    page.get_by_role("button", name="Send back").click()
    page.get_by_text("The record is sent to orders again").wait_for()
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_text("Sent to orders, partition").wait_for()


def test_themes(page: Page, console: RunningConsole) -> None:
    go(page, console, "/")
    page.get_by_role("heading", name="Overview").wait_for()
    colours = set()
    for name in ("light", "dark"):
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name=f"Theme: {name}").wait_for()
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_a_cluster_that_is_gone(browser: Browser) -> None:
    """The page says what is wrong instead of staying empty."""
    with Broker() as gone:
        bootstrap = gone.bootstrap
    with RunningConsole(bootstrap, api_timeout_ms=500) as console, opened_page(browser) as (page, _):
        go(page, console, "/")
        page.get_by_role("heading", name="This page cannot be shown").wait_for()
        assert bootstrap in page.get_by_role("alert").inner_text()


# The clock of a page jumps ahead by this to its next refresh.
REFRESH_MS = 10_000


def health(page: Page) -> Locator:
    return page.locator(".card", has_text="Health").locator(".number")


def test_a_cluster_that_dies_under_a_page(browser: Browser) -> None:
    """The page does not call it healthy any more, and says since when it knows nothing."""
    with (
        Broker() as broker,
        RunningConsole(broker.bootstrap, api_timeout_ms=1_000, sample_interval_s=0.2) as console,
        opened_page(browser) as (page, faults),
    ):
        page.clock.install()
        go(page, console, "/")
        health(page).get_by_text("Healthy").wait_for()
        broker.kill()
        wait_until(lambda: console.ask("GET", "/api/overview").status != 200)
        page.clock.fast_forward(REFRESH_MS)
        page.get_by_role("alert").get_by_text(re.compile(r"^Not refreshed since \d\d:\d\d:\d\d: ")).wait_for()
        assert broker.bootstrap in page.get_by_role("alert").inner_text()
        assert health(page).inner_text() == "Unknown"

        broker.start()
        wait_until(lambda: console.ask("GET", "/api/overview").status == 200)
        page.clock.fast_forward(REFRESH_MS)
        health(page).get_by_text("Healthy").wait_for()
        page.locator("#alert").wait_for(state="hidden")
        assert not faults


def test_a_console_that_does_not_answer(page: Page, console: RunningConsole) -> None:
    page.clock.install()
    go(page, console, "/")
    health(page).get_by_text("Healthy").wait_for()
    held: list[Route] = []
    page.route("**/api/overview", lambda route: held.append(route))
    with page.expect_request("**/api/overview"):
        page.clock.fast_forward(REFRESH_MS)
    page.clock.fast_forward(30_000)
    page.get_by_role("alert").get_by_text("The console has not answered for 30 s.").wait_for()
    assert health(page).inner_text() == "Unknown"
    held[0].continue_()
    health(page).get_by_text("Healthy").wait_for()
    page.locator("#alert").wait_for(state="hidden")


def test_a_list_that_cannot_be_searched(page: Page, console: RunningConsole) -> None:
    go(page, console, "/topics")
    page.get_by_role("link", name="orders", exact=True).wait_for()
    page.route("**/api/topics?*", lambda route: route.abort())
    page.get_by_label("Find a topic").fill("o")
    page.get_by_role("alert").get_by_text("The console does not answer.").wait_for()


def test_a_list_is_refreshed_under_a_dialog(page: Page, console: RunningConsole, filled: Broker) -> None:
    """Afterwards the focus is on the button that opened the dialog, which is a new one."""
    page.clock.install()
    go(page, console, "/transactions")
    page.get_by_role("button", name="Fence till-1").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    with filled.producer(transactional_id="till-3") as producer:
        producer.begin_transaction()
        producer.send("orders", b"{}").result(60)
        page.clock.fast_forward(REFRESH_MS)
        page.get_by_text("till-3", exact=True).wait_for()
        producer.abort_transaction()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Fence till-1").and_(page.locator(":focus")).wait_for()


def test_the_partitions_of_a_topic_are_refreshed(page: Page, console: RunningConsole, filled: Broker) -> None:
    filled.create_topics({"grows": 1})
    page.clock.install()
    go(page, console, "/topics/grows")
    in_use = page.locator(".card", has_text="Offsets in use")
    in_use.get_by_text("0", exact=True).wait_for()
    with filled.producer() as producer:
        producer.send("grows", b"1").result(60)
    wait_until(lambda: console.get("/api/topics/grows")["partitions"][0]["end_offset"] == 1)
    page.clock.fast_forward(REFRESH_MS)
    in_use.get_by_text("1", exact=True).wait_for()


def test_the_progress_of_a_move(browser: Browser) -> None:
    """It grows without a reload; a throttle keeps the move from its end."""
    partition = TopicPartition("large", 0)
    with (
        Broker(brokers=2, topics={"large": 1}, replica_fetch_max_bytes=100_000) as broker,
        broker.admin() as admin,
        RunningConsole(broker.bootstrap) as console,
        opened_page(browser) as (page, faults),
    ):
        with broker.producer(compression_type="none") as producer:
            for _ in range(100):
                producer.send("large", bytes(100_000))
            producer.flush()
        source = list(admin.describe_topics("large")["large"].partitions[0].replicas)
        target = [each for each in (0, 1) if each not in source]
        admin.alter_configs(throttle_changes({partition: source}, {partition: target}, 200_000))
        admin.alter_reassignments({partition: target})
        page.clock.install()
        go(page, console, "/cluster")
        progress = page.get_by_role("progressbar", name="Progress of large-0")
        progress.wait_for()
        first = float(progress.get_attribute("value") or 0)
        admin.alter_configs(throttle_changes({partition: source}, {partition: target}, 400_000))
        wait_until(
            lambda: float(progress.get_attribute("value") or 0) > first,
            meanwhile=lambda: page.clock.fast_forward(REFRESH_MS),
        )
        page.get_by_role("button", name="Cancel the move of large-0").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel the move").click()
        page.get_by_text("No replicas are moved now.").wait_for()
        assert not faults
