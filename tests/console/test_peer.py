"""The console on Apache Kafka: search on its files and by fetching, groups, settings, and the pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import Acl, AclOperation, AclResourceType
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.console.server import Login
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.testing import free_port
from bench.kafka import ApacheKafka
from tests.console import changes
from tests.console.chromium import change_acls, opened_page, running_chromium
from tests.console.running import RunningConsole
from tests.peers.kafka_peer import V4, PeerUnavailable, jars
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.peer]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class GuardedKafka(ApacheKafka):
    """Apache Kafka with a second listener, for users with passwords."""

    def __init__(self, directory: Path, overrides: Mapping[str, str]) -> None:
        super().__init__(directory, overrides)
        self.sasl_address = f"127.0.0.1:{free_port()}"
        old = dict(line.split("=", 1) for line in self._properties.read_text().splitlines())
        added = {
            **{
                name: f"{old[name]},SASL_PLAINTEXT://{self.sasl_address}"
                for name in ("listeners", "advertised.listeners")
            },
            "listener.security.protocol.map": f"{old['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
        with self._properties.open("a") as file:
            file.write("".join(f"{name}={value}\n" for name, value in added.items()))


@pytest.fixture(scope="module")
def kafka(guarded: GuardedKafka) -> str:
    return guarded.address


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """An Apache Kafka with the topic `orders`, 100 records in it, and the group `billing`."""
    try:
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    folder: Path = tmp_path_factory.mktemp("console")
    with GuardedKafka(folder / "kafka", SETTINGS) as broker:
        with Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topics({"orders": 2})
            wait_until(lambda: "orders" in admin.describe_topics())
        with Producer(bootstrap_servers=broker.address, compression_type="lz4") as producer:
            for number in range(100):
                producer.send("orders", b'{"n": %d}' % number, key=b"key-%d" % number, partition=number % 2)
        with Consumer(
            bootstrap_servers=broker.address, group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            read = 0
            while read < 100:
                read += len(consumer.poll(1000))
            consumer.commit()
        yield broker


@pytest.mark.parametrize("may_read_files", [True, False])
def test_search(kafka: str, may_read_files: bool) -> None:
    with RunningConsole(kafka, may_read_files=may_read_files) as console:
        events = list(console.events("/api/topics/orders/search?q=%24.n%3E%3D98"))
        assert sorted(data["key"]["text"] for name, data in events if name == "hit") == ["key-98", "key-99"]
        assert dict(events)["plan"]["local_partitions"] == (2 if may_read_files else 0)
        assert events[-1][1]["reason"] == "complete"
        assert events[-1][1]["records"] == 100


def change_access(page: Page, console: RunningConsole) -> None:
    page.goto(f"{console.address}/#/access")
    page.get_by_role("button", name="Create user").click()
    page.get_by_label("Name", exact=True).fill("dave")
    page.get_by_label("Password", exact=True).fill("secret")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("button", name="Delete dave for SCRAM-SHA-512").click()
    page.get_by_label("Type dave to confirm").fill("dave")
    page.get_by_role("button", name="Delete", exact=True).last.click()
    page.get_by_text("No user has a password").wait_for()
    change_acls(page)


def change_quotas_and_replicas(page: Page, console: RunningConsole) -> None:
    page.goto(f"{console.address}/#/cluster")
    page.get_by_role("button", name="Add quota").click()
    page.get_by_label("User", exact=True).fill("(default)")
    page.get_by_label("consumer_byte_rate").fill("1000000")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("consumer_byte_rate=1000000").wait_for()
    page.get_by_role("button", name="Change the quotas of user (default)").click()
    page.get_by_label("consumer_byte_rate").fill("")
    page.get_by_role("button", name="Change", exact=True).last.click()
    page.get_by_text("There are no quotas.").wait_for()
    page.goto(f"{console.address}/#/topics/orders")
    page.get_by_role("button", name="Move the replicas of partition 1").click()
    page.get_by_label("Broker ids").fill("99")
    page.get_by_role("button", name="Move", exact=True).last.click()
    page.get_by_role("dialog").get_by_text("99").first.wait_for()
    page.get_by_role("button", name="Cancel").click()


def test_pages_and_changes(kafka: str) -> None:
    with (
        RunningConsole(kafka, sample_interval_s=1.0) as console,
        running_chromium() as browser,
        opened_page(browser) as (page, faults),
    ):
        page.goto(f"{console.address}/#/")
        page.get_by_text("Healthy").wait_for()
        page.goto(f"{console.address}/#/topics/orders/messages?q=key-42")
        page.get_by_text("All records searched: 1 hit in 100 records").wait_for()
        page.goto(f"{console.address}/#/topics/__consumer_offsets/messages?limit=500")
        page.get_by_text("OffsetCommit").first.wait_for()
        page.goto(f"{console.address}/#/topics/orders/settings")
        page.get_by_role("button", name="Change retention.ms", exact=True).click()
        page.get_by_label("New value").fill("120000")
        page.get_by_role("button", name="Change", exact=True).last.click()
        page.get_by_text("120000").wait_for()
        page.goto(f"{console.address}/#/groups/billing")
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_role("button", name="Preview, then apply").click()
        page.get_by_text("Nothing has changed yet.").wait_for()
        page.get_by_role("button", name="Preview, then apply").click()
        page.locator(".card", has_text="Lag").get_by_text("100", exact=True).wait_for()
        change_access(page, console)
        change_quotas_and_replicas(page, console)
        assert not faults


PAGES = {
    "/": ("Overview", "controller"),
    "/metrics": ("Metrics", "Groups with the largest lag"),
    "/topics": ("Topics", "orders"),
    "/topics/orders": ("orders", "End offset"),
    "/topics/orders/messages": ("orders", "key-99"),
    "/topics/orders/settings": ("orders", "retention.ms"),
    "/topics/orders/consumers": ("orders", "billing"),
    "/topics/orders/producers": ("orders", "Last sequence"),
    "/groups": ("Consumer groups", "billing"),
    "/groups/billing": ("billing", "Partitions that the group reads"),
    "/transactions": ("Transactions", "transactional id"),
    "/cluster": ("Cluster", "Log directories"),
    "/access": ("Access", "Create user"),
}


def test_the_same_pages_and_changes_as_on_barnabas(kafka: str) -> None:
    with (
        RunningConsole(kafka, sample_interval_s=1.0) as console,
        running_chromium() as browser,
        Producer(bootstrap_servers=kafka, transactional_id="till-2") as producer,
        Admin(bootstrap_servers=kafka) as admin,
    ):
        admin.alter_group_offsets("gone", {TopicPartition("orders", 0): 0})
        producer.begin_transaction()
        producer.send("orders", b"{}").result(60)
        with opened_page(browser) as (page, faults):
            changes.use_topic(page, console)
            changes.change_broker_settings(page, console)
            changes.delete_group(page, console, "gone")
            changes.fence(page, console, "till-2")
            with pytest.raises(KafkaError):
                producer.commit_transaction()
            assert page.evaluate("window.hacked") is None
            assert not faults
        headings = {path: heading for path, (heading, _) in PAGES.items()}
        content = {path: text for path, (_, text) in PAGES.items()}
        for width in (1280, 400):
            with opened_page(browser, width=width) as (page, faults):
                changes.look_at_pages(page, console, headings, content, width)
                assert not faults


def test_a_login(guarded: GuardedKafka) -> None:
    with Admin(bootstrap_servers=guarded.address) as admin:
        admin.create_topics({"closed": 1})
        admin.set_scram_password("ann", "ann-secret")
        acl = Acl("User:ann", AclOperation.READ, AclResourceType.TOPIC, "orders")
        admin.create_acls(acl)
        wait_until(lambda: admin.describe_scram_users().get("ann") and acl in admin.describe_acls())
    with (
        RunningConsole(guarded.sasl_address, login=Login(kind="cluster")) as console,
        running_chromium() as browser,
        opened_page(browser) as (page, faults),
    ):
        page.goto(f"{console.address}/#/topics")
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("the cluster refused this name and password").wait_for()
        page.get_by_label("Password").fill("ann-secret")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="orders", exact=True).wait_for()
        assert page.get_by_role("link", name="closed", exact=True).count() == 0
        page.get_by_role("link", name="Messages of orders").click()
        page.get_by_text("50 records.").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", level=1, name="Log in").wait_for()
        assert not faults
