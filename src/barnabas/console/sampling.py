"""Looks at the cluster every few seconds: what pages show at once, and the rates of the last hour.

A sample of a cluster with 10,000 partitions takes part of a second, so pages read the last one. The interval grows with
the duration of a sample: looking takes at most a tenth of the time. A sample that fails is taken again after the usual
interval.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import CommittedOffset, GroupListing, OffsetSpec, TopicDescription
from barnabas.clock import Clock
from barnabas.console.broker_metrics import BrokerMetrics
from barnabas.console.connection import Connection
from barnabas.console.history import History
from barnabas.console.retention import Retention
from barnabas.errors import KafkaError, RequestTimedOut
from barnabas.model import TopicPartition
from barnabas.views.health import ClusterHealth, cluster_health
from barnabas.views.lag import lag_of
from barnabas.views.offsets import available_offsets
from barnabas.views.sizes import DirectorySize, directory_sizes

log = logging.getLogger("barnabas.console")

INTERVAL_S: Final = 10.0
SHARE_OF_TIME: Final = 10
FIRST_SAMPLE_S_MAX: Final = 20.0
GROUPS_MAX: Final = 200
TOPIC_SERIES_MAX: Final = 300
PARTITION_SERIES_MAX: Final = 400
MS_PER_S: Final = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one moment. Parts that brokers did not tell are empty, and `gaps` says why."""

    time_ms: int
    request_ms: float
    health: ClusterHealth
    topics: Mapping[str, TopicDescription]
    first_offsets: Mapping[TopicPartition, int]
    end_offsets: Mapping[TopicPartition, int]
    directories: tuple[DirectorySize, ...]
    groups: tuple[GroupListing, ...]
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    gaps: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)

    def records_of(self, topic: TopicDescription) -> int:
        partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        return sum(
            max(0, self.end_offsets[each] - self.first_offsets.get(each, 0))
            for each in partitions
            if each in self.end_offsets
        )

    def lag_of_group(self, group_id: str) -> int | None:
        """The records that a group has yet to read; None if it was not sampled."""
        committed = self.committed.get(group_id)
        if committed is None:
            return None
        lags = [lag_of(each.offset, self.end_offsets.get(partition)) for partition, each in committed.items()]
        return sum(each for each in lags if each is not None)

    def largest_lags(self, count: int) -> list[tuple[tuple[str, TopicPartition], int]]:
        """The partitions that groups are furthest behind in, with their lags."""
        lags = {
            (group, partition): lag
            for group, committed in self.committed.items()
            for partition, each in committed.items()
            if (lag := lag_of(each.offset, self.end_offsets.get(partition))) is not None
        }
        return heapq.nlargest(count, lags.items(), key=lambda each: each[1])

    def lag_of_topics(self) -> dict[str, int]:
        """The lag of all groups, by topic."""
        lags: dict[str, int] = {}
        for committed in self.committed.values():
            for partition, each in committed.items():
                lag = lag_of(each.offset, self.end_offsets.get(partition))
                if lag is not None:
                    lags[partition.topic] = lags.get(partition.topic, 0) + lag
        return lags


class Sampler:
    """Takes snapshots on a thread of its own. `current` waits for the first one."""

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        *,
        interval_s: float = INTERVAL_S,
        metrics_urls: Sequence[str] = (),
    ) -> None:
        self.history = History()
        self.metrics = BrokerMetrics(metrics_urls)
        self._retention = Retention()
        self._connection = connection
        self._clock = clock
        self._interval_s = interval_s
        self._condition = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._error: Exception | None = None
        # Counts calls of `refresh`; a snapshot serves those that came before it was begun.
        self._wanted = 0
        self._served = 0
        self._has_tried = False
        self._is_closed = False
        self._admin: Admin | None = None
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        self._thread.join()
        if self._admin is not None:
            self._admin.close()

    @property
    def admin(self) -> Admin:
        """The admin client; the first call connects."""
        with self._condition:
            if self._admin is None:
                self._admin = self._connection.new_admin()
            return self._admin

    def current(self) -> Snapshot:
        """The last snapshot. Raises why there is none, after a while."""
        with self._condition:
            self._condition.wait_for(lambda: self._has_tried or self._is_closed, FIRST_SAMPLE_S_MAX)
            if self._error is not None:
                raise self._error
            if self._snapshot is None:
                raise RequestTimedOut(f"{self._connection.bootstrap} has not answered yet")
            return self._snapshot

    def retention_of(self, topics: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        return self._retention.read(self.admin, topics)

    def forget_retention(self, topic: str) -> None:
        self._retention.forget(topic)

    def refresh(self) -> None:
        """Takes a snapshot now, for a page that shows what was just changed."""
        with self._condition:
            self._wanted += 1
            wanted = self._wanted
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._served >= wanted or self._is_closed, FIRST_SAMPLE_S_MAX)

    def _run(self) -> None:
        while True:
            started_s = time.monotonic()
            error: Exception | None = None
            with self._condition:
                serves = self._wanted
            try:
                if self._snapshot is None:
                    # Pages need not wait for the offsets of all partitions.
                    self._publish(take_snapshot(self.admin, self._clock, is_quick=True), None, 0)
                before = self._snapshot
                snapshot = self._with_rates(take_snapshot(self.admin, self._clock))
                self._remember(before, snapshot)
                self._publish(snapshot, None, serves)
            except KafkaError as failure:
                error = failure
                log.warning("No answer from %s: %s", self._connection.bootstrap, failure)
            except ExceptionGroup as failures:
                error = RequestTimedOut(str(failures))
            except Exception as bug:
                # Pages report it, and the next sample may succeed.
                error = bug
                log.exception("A sample of %s failed", self._connection.bootstrap)
            pause_s = self._interval_s
            if error is not None:
                # A cluster that is away is asked again soon, however long the last question took.
                self._publish(None, error, serves)
            else:
                pause_s = max(pause_s, (time.monotonic() - started_s) * SHARE_OF_TIME)
            with self._condition:
                self._condition.wait_for(lambda: self._is_closed or self._wanted > self._served, pause_s)
                if self._is_closed:
                    return

    def _publish(self, snapshot: Snapshot | None, error: Exception | None, serves: int) -> None:
        with self._condition:
            self._snapshot = snapshot or self._snapshot
            self._error = error
            self._served = max(self._served, serves)
            self._has_tried = True
            self._condition.notify_all()

    def _with_rates(self, new: Snapshot) -> Snapshot:
        """Adds records per second since the last snapshot, by topic."""
        old = self._snapshot
        if old is None or new.time_ms - old.time_ms < MS_PER_S:
            # After a refresh the time is too short for a rate.
            rates = {} if old is None else old.rates
        else:
            counts: dict[str, int] = {}
            for partition, end_offset in new.end_offsets.items():
                before = old.end_offsets.get(partition)
                if before is not None:
                    counts[partition.topic] = counts.get(partition.topic, 0) + max(0, end_offset - before)
            elapsed_s = (new.time_ms - old.time_ms) / MS_PER_S
            rates = {topic: count / elapsed_s for topic, count in counts.items()}
        fields = {name: getattr(new, name) for name in Snapshot.__dataclass_fields__}
        return Snapshot(**{**fields, "rates": rates})

    def _remember(self, before: Snapshot | None, snapshot: Snapshot) -> None:
        values: dict[str, float] = {"request_ms": snapshot.request_ms}
        values |= self.metrics.sample(snapshot.time_ms)
        if snapshot.sizes:
            values["bytes"] = float(sum(snapshot.sizes.values()))
            if before is not None and before.sizes and snapshot.time_ms > before.time_ms:
                grown = values["bytes"] - sum(before.sizes.values())
                values["growth_per_second"] = max(0.0, grown) * MS_PER_S / (snapshot.time_ms - before.time_ms)
        if snapshot.rates:
            values["records_per_second"] = sum(snapshot.rates.values())
            busiest = sorted(snapshot.rates.items(), key=lambda each: -each[1])[:TOPIC_SERIES_MAX]
            values |= {f"topic:{name}": rate for name, rate in busiest}
        lags = {group: snapshot.lag_of_group(group) for group in snapshot.committed}
        values |= {f"group:{group}": float(lag) for group, lag in lags.items() if lag is not None}
        values["lag"] = float(sum(lag for lag in lags.values() if lag is not None))
        for (group, partition), lag in snapshot.largest_lags(PARTITION_SERIES_MAX):
            values[f"lag:{group}:{partition}"] = float(lag)
        self.history.add(snapshot.time_ms, values)


def take_snapshot(admin: Admin, clock: Clock, *, is_quick: bool = False) -> Snapshot:
    """The cluster now; a quick snapshot has brokers and topics alone."""
    gaps: list[str] = []
    started_s = time.monotonic()
    health = cluster_health(admin)
    request_ms = (time.monotonic() - started_s) * MS_PER_S
    topics = admin.describe_topics()
    if is_quick:
        return Snapshot(
            time_ms=clock.now_ms(),
            request_ms=request_ms,
            health=health,
            topics=topics,
            first_offsets={},
            end_offsets={},
            directories=(),
            groups=(),
            committed={},
            gaps=("offsets, sizes and groups, which are being read",),
        )
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in topics.values()
        for each in topic.partitions
        if each.leader is not None
    ]
    groups: list[GroupListing] = _partly(admin.list_groups, "groups", gaps)
    directories = _partly(lambda: directory_sizes(admin), "log directories", gaps)
    sizes: dict[str, int] = {}
    for directory in directories:
        for replica in directory.replicas:
            topic = replica.partition.topic
            sizes[topic] = sizes.get(topic, 0) + replica.on_disk.size_bytes
    committed: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
    for group in groups[:GROUPS_MAX]:
        try:
            committed[group.group_id] = admin.list_group_offsets(group.group_id)
        except (KafkaError, AdminErrors):
            # The group's own page shows the reason.
            continue
    if len(groups) > GROUPS_MAX:
        gaps.append(f"the lag of {len(groups) - GROUPS_MAX} more groups is not sampled")
    return Snapshot(
        time_ms=clock.now_ms(),
        request_ms=request_ms,
        health=health,
        topics=topics,
        first_offsets=available_offsets(admin, dict.fromkeys(partitions, int(OffsetSpec.EARLIEST))),
        end_offsets=available_offsets(admin, dict.fromkeys(partitions, int(OffsetSpec.LATEST))),
        directories=tuple(directories),
        groups=tuple(groups),
        committed=committed,
        gaps=tuple(gaps),
        sizes=sizes,
    )


def _partly(ask: Callable[[], list[T]], what: str, gaps: list[str]) -> list[T]:
    """The answer, or nothing and a note: brokers may deny a part to this client."""
    try:
        return ask()
    except (KafkaError, AdminErrors) as error:
        gaps.append(f"{what}: {error}")
        return []
