"""The driver's requests to brokers: the existing partitions, and their first and end offsets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import IsolationLevel
from barnabas.errors import (
    InvalidConfig,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from barnabas.model import TopicPartition
from barnabas.spark.topics.offsets import EARLIEST, LATEST, Offsets, admin_settings, commit_by
from barnabas.spark.topics.options import ASSIGN, SUBSCRIBE, Position, TopicOptions

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")
NAMED_MAX: Final = 5


class DataLost(OffsetOutOfRange):
    """Records that were to be read are gone."""


class BrokerUnreachable(RequestTimedOut):
    """No broker has answered in time."""


def report_data_loss(
    message: str,
    *,
    fail_on_data_loss: bool,
    remedy: str = "Records that expire before they are read need a longer retention or a faster query",
) -> None:
    """Raises DataLost, or only warns, as the option says."""
    if fail_on_data_loss:
        raise DataLost(f"{message}. {remedy}; to continue without them set failOnDataLoss=false")
    log.warning("%s; the query continues without the deleted records, because failOnDataLoss=false", message)


def named(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    return ", ".join(names[:NAMED_MAX]) + (
        f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    )


class TopicDirectory:
    """An admin client for one query. Not for several threads."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._isolation = (
            IsolationLevel.READ_COMMITTED if options.is_read_committed else IsolationLevel.READ_UNCOMMITTED
        )

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def partitions(self, *, may_be_missing: bool = False) -> dict[TopicPartition, str | None]:
        """The partitions that the options select, each with the id of its topic.

        A named topic that does not exist is an error, unless it may have been deleted in the meantime.
        """
        options = self._options
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            listed = self._ask(lambda admin: admin.list_topics())
            return {
                TopicPartition(topic.name, number): topic.topic_id
                for topic in listed
                if pattern.fullmatch(topic.name)
                for number in range(topic.partitions)
            }
        names = options.topics or tuple(dict.fromkeys(partition.topic for partition in options.assigned))
        described = self._existing(lambda admin: admin.describe_topics(names), names)
        for name in names:
            if name not in described and not may_be_missing:
                raise InvalidConfig(
                    f"{SUBSCRIBE if options.topics else ASSIGN}: there is no topic {name!r}; create it, or correct the"
                    " name"
                )
        found = {
            TopicPartition(name, each.partition): topic.topic_id
            for name, topic in described.items()
            for each in topic.partitions
        }
        if not options.assigned:
            return found
        for partition in options.assigned:
            if partition not in found and not may_be_missing:
                raise InvalidConfig(
                    f"{ASSIGN}: topic {partition.topic!r} has no partition {partition.partition}; leave it out"
                )
        return {partition: found[partition] for partition in options.assigned if partition in found}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """First offsets; omits deleted partitions."""
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> Offsets:
        """End offsets (last stable offsets for read_committed); omits deleted partitions.

        If an offset is below a known one, the leader may not have the latest state yet: it is asked again a few times.
        """
        wanted = list(partitions)
        for attempt in range(self._options.attempts):
            found = self._listed(dict.fromkeys(wanted, LATEST))
            behind = [each for each, offset in (known or {}).items() if found.get(each, offset) < offset]
            if not behind:
                break
            log.warning("%s end before offsets that were read already", named(behind))
            if attempt + 1 < self._options.attempts:
                time.sleep(self._options.retry_interval_ms / 1000)
        return found

    def at_time(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record that is not before the time; None if there is none."""
        listed = self._existing(
            lambda admin: admin.list_offsets(times_ms, isolation=self._isolation), times_ms.keys()
        )
        return {partition: each.offset for partition, each in listed.items()}

    def resolve(self, position: Position, partitions: Iterable[TopicPartition]) -> Offsets:
        """The offsets for a position, for exactly these partitions."""
        wanted = list(partitions)
        if position.each is not None:
            given = dict(position.each)
            differing = given.keys() ^ set(wanted)
            if differing:
                raise InvalidConfig(
                    f"{position.option} must name all partitions that are read, and no others; {named(differing)}"
                    f" {'is' if len(differing) == 1 else 'are'} on one side only (-1 stands for the latest offset, -2"
                    " for the earliest)"
                )
        else:
            assert position.everywhere is not None
            given = dict.fromkeys(wanted, position.everywhere)
        if position.is_time:
            given = self._by_time(position, given)
        early = self.earliest(each for each, offset in given.items() if offset == EARLIEST)
        late = self.latest(each for each, offset in given.items() if offset == LATEST)
        return given | early | late

    def committed(self, group: str) -> Offsets:
        """The committed offsets of the group."""
        listed = self._ask(lambda admin: admin.list_group_offsets(group))
        return {partition: each.offset for partition, each in listed.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the progress to the group."""
        self._ask(lambda admin: commit_by(admin, group, offsets))

    def _by_time(self, position: Position, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        found = self.at_time(times_ms)
        late = [partition for partition, offset in found.items() if offset is None]
        if late and not position.latest_if_none:
            raise InvalidConfig(
                f"{position.option}: {named(late)} {'has' if len(late) == 1 else 'have'} no record at or after"
                f" {times_ms[late[0]]}; choose an earlier time, or set startingOffsetsByTimestampStrategy=latest"
            )
        return {partition: LATEST if offset is None else offset for partition, offset in found.items()}

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        listed = self._existing(
            lambda admin: admin.list_offsets(wanted, isolation=self._isolation), wanted.keys()
        )
        return {partition: each.offset for partition, each in listed.items() if each.offset is not None}

    def _existing(self, ask: Callable[[Admin], dict[K, T]], items: Iterable[K]) -> dict[K, T]:
        """Results of those items, topics or partitions, that there are."""
        if not list(items):
            return {}
        try:
            return self._ask(ask)
        except AdminErrors as errors:
            for error in errors.errors.values():
                if not isinstance(error, UnknownTopicOrPartition):
                    raise error from None
            return dict(errors.results)
        except UnknownTopicOrPartition:
            return {}

    def _ask(self, ask: Callable[[Admin], T]) -> T:
        try:
            if self._admin is None:
                self._admin = Admin(admin_settings(self._options.kafka))
            return ask(self._admin)
        except RequestTimedOut as error:
            raise BrokerUnreachable(
                f"kafka.bootstrap.servers={self._options.kafka['bootstrap.servers']}: {error}; correct the address, or"
                " start the broker (kafka.default.api.timeout.ms sets the time limit)"
            ) from None
