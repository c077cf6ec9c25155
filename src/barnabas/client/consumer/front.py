"""Shared parts of the blocking and the asyncio consumer: everything that needs no waiting.

A front belongs to the caller. Only the front changes the assignment and the positions; it notifies the loop afterwards
(`_post`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, cast

from barnabas.client.consumer.core import ConsumerCore
from barnabas.client.consumer.intake import Deserializer, Intake
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.failures import ClientClosed
from barnabas.client.groups.handover import Change, Rebalance
from barnabas.client.loop_thread import FORKED
from barnabas.client.partition_state import PartitionState
from barnabas.client.reset_policy import EARLIEST, LATEST
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import (
    ConsumerError,
    ConsumerGroupMetadata,
    ConsumerWakeup,
    OffsetAndMetadata,
    Subscription,
    as_list,
    as_offsets,
    as_partition,
)
from barnabas.errors import InvalidConfig, InvalidGroupId, KafkaError
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]

POLL_TIMEOUT_MS: Final = 1_000.0


class RebalanceListener:
    """Called in poll() when partitions are assigned and revoked.

    For the asyncio consumer, methods may be coroutines.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """These came; nothing is read of them yet, so this is the place to seek()."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """Called before these partitions are revoked: the place to commit processed offsets."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """These went without being asked for, and others may read them already: nothing can be committed."""
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor:
    """Sees records before the caller does, and offsets after they were committed."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records that the caller gets instead of these."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def close(self) -> None: ...


class ConsumerFront(ABC):
    _core: ConsumerCore
    _intake: Intake

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._subscription = Subscription()
        self._listener: RebalanceListener | None = None
        self._interceptors = interceptors_of(settings.interceptor_classes)
        # Functions to be called in the caller's next poll, commit or close.
        self._callbacks: deque[Callable[[], object]] = deque()
        self._is_closed = False
        self._is_forked = False
        self._has_joined = False
        self._commit_due_s = time.monotonic() + settings.auto_commit_interval_ms / 1000
        self._committed_last: dict[TopicPartition, OffsetAndMetadata] = {}
        self._iterated = 0
        self._is_woken = False

    @abstractmethod
    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        """Makes the loop call a function soon."""

    def _attach(self, core: ConsumerCore) -> None:
        self._core = core
        self._intake = Intake(
            self._subscription,
            core.queue,
            key_deserializer=deserializer_of(self._settings.key_deserializer, "key.deserializer"),
            value_deserializer=deserializer_of(self._settings.value_deserializer, "value.deserializer"),
            wake=lambda: self._post(core.changed),
            reset=self._reset if core.resets else None,
        )

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribes to these topics in the group, instead of the previous ones.

        A pattern is matched from the start of a topic's name, in the client. With group.protocol=consumer, a pattern
        that is given as text is an RE2 expression, and the broker matches it against the whole name. New matching
        topics are added.
        """
        self._check_open()
        if self._settings.group_id is None:
            raise InvalidGroupId("subscribe() needs a group: set group.id, or assign() partitions by hand")
        if isinstance(topics, re.Pattern):
            pattern, topics = topics, ()
        if listener is not None and not hasattr(listener, "on_partitions_assigned"):
            raise ConsumerError(f"{listener!r} is no RebalanceListener: make a class of one, or give None")
        if pattern is not None:
            if topics:
                raise ConsumerError("subscribe() takes topics or a pattern, and not both")
            self._subscription.subscribe_pattern(self._pattern(pattern))
        else:
            names = as_list(
                [topics] if isinstance(topics, str) else topics, "names of topics, such as ['orders']"
            )
            if not names:
                raise ConsumerError("subscribe() without topics: name at least one, or call unsubscribe()")
            self._subscription.subscribe(names)
        self._listener = listener
        self._post(self._core.subscribed)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads exactly these partitions, without a group's help. Those assigned before keep their position."""
        self._check_open()
        self._auto_commit_soon()
        self._subscription.assign(cast(Iterable[TopicPartition], partitions))
        self._post(self._core.changed)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._subscription.partitions)

    def subscription(self) -> set[str]:
        """The topics that are subscribed to; of a pattern those that match it, as far as is known here."""
        return set(self._subscription.topics)

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continues to read at this offset."""
        self._check_open()
        state = self._subscription.state_of(as_partition(partition))
        target = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if type(target.offset) is not int or target.offset < 0:
            raise ConsumerError(
                f"seek() to {offset!r}: an offset is 0 or more; for the ends there are seek_to_beginning() and"
                " seek_to_end()"
            )
        self._replace([state.successor(position=target.offset, epoch=target.leader_epoch)])

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continues at the first record of these partitions, or of all assigned ones."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continues after the last record of these partitions, or of all assigned ones."""
        self._seek_to(partitions, LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continues at the first record at this time (in ms since 1970) or later, in these or all partitions.

        A partition without such a record continues after its last record.
        """
        if type(timestamp_ms) is not int or timestamp_ms < 0:
            raise ConsumerError(
                f"seek_to_time() to {timestamp_ms!r}: a time is in ms since 1970, such as 1_700_000_000_000"
            )
        self._seek_to(partitions, timestamp_ms)

    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Returns no records of these partitions, or of all assigned ones, until they are resumed."""
        for state in self._states(partitions):
            state.is_paused = True

    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Undoes a pause; of all paused partitions if none is named."""
        for state in self._states(partitions):
            state.is_paused = False
            self._intake.resume(state.partition)
        self._post(self._core.changed)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {partition for partition, state in self._subscription.partitions.items() if state.is_paused}

    def metrics(self) -> dict[str, float]:
        """Metrics of this consumer, by the names of Kafka's own metrics; `lag` has the lag of a partition."""
        self._check_open()
        return self._core.metrics() | self._intake.metrics()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Which member of the group this is: for a producer's send_offsets()."""
        self._check_open()
        return self._core.group_metadata()

    def _pattern(self, pattern: str | re.Pattern[str]) -> str | re.Pattern[str]:
        # A caller without type checks may have passed anything.
        if not isinstance(pattern, str | re.Pattern):
            raise ConsumerError(f"{pattern!r} is no pattern: give text, or what re.compile() returns")
        if isinstance(pattern, re.Pattern) or self._settings.group_protocol == "consumer":
            return pattern
        try:
            return re.compile(pattern)
        except re.error as error:
            raise ConsumerError(f"{pattern!r} is no regular expression: {error}") from None

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(FORKED if self._is_forked else "this consumer is closed: make a new one")

    def _forked(self) -> None:
        self._is_forked = True
        self._is_closed = True

    def _states(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> list[PartitionState]:
        self._check_open()
        named = [self._subscription.state_of(as_partition(each)) for each in partitions]
        return named or list(self._subscription.partitions.values())

    def _seek_to(self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int) -> None:
        self._replace(
            [state.successor(position=None, reset_timestamp=timestamp) for state in self._states(partitions)]
        )

    def _replace(self, states: list[PartitionState]) -> None:
        for state in states:
            self._subscription.replace(state)
        self._post(self._core.changed)

    def _reset(self, state: PartitionState) -> None:
        self._replace([state.successor(position=None, reset_timestamp=self._core.reset_timestamp)])

    def _lag(self, state: PartitionState) -> int | None:
        """The number of offsets between the position and the end, according to the last fetch."""
        end_offset = (
            state.last_stable_offset
            if self._settings.isolation_level == "read_committed"
            else state.high_watermark
        )
        if end_offset < 0 or state.position is None:
            return None
        return max(0, end_offset - state.position)

    def _begin_poll(self) -> None:
        """The first step of every poll: offsets of earlier polls may be committed now."""
        if self._is_closed:
            self._check_open()
        handover = self._core.handover
        if handover.is_polling:
            raise ConsumerError(
                "poll() is under way: a consumer is for one thread, and a listener cannot poll"
            )
        if not self._subscription.partitions and not self._subscription.is_subscribed:
            raise ConsumerError("there is nothing to poll for: call subscribe() or assign() first")
        if not self._has_joined and self._subscription.is_subscribed:
            self._has_joined = True
            handover.end_poll()
            self._post(self._core.join)
        # An exception of the caller's functions must end the poll.
        if self._callbacks:
            self._run_callbacks()
        handover.begin_poll()
        if self._settings.enable_auto_commit and time.monotonic() >= self._commit_due_s:
            self._auto_commit_soon()

    def _raise_wakeup(self) -> None:
        self._is_woken = False
        raise ConsumerWakeup("wakeup() was called")

    def _end_poll(self) -> None:
        self._core.handover.end_poll()

    def _raise_failure(self) -> None:
        """Raises what keeps the consumer out of its group."""
        failures = self._core.handover.failures
        if failures:
            failure = failures.popleft()
            self._core.handover.answer(failure)
            raise failure.error

    def _auto_commit_soon(self) -> None:
        if not self._settings.enable_auto_commit:
            return
        self._commit_due_s = time.monotonic() + self._settings.auto_commit_interval_ms / 1000
        positions = self._subscription.positions()
        if positions and positions != self._committed_last:
            self._committed_last = positions
            self._post(self._core.commit_soon, positions, self._on_auto_committed)

    def _on_auto_committed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None
    ) -> None:
        """On the loop. Offsets that could not be committed are committed next time."""
        self._committed_last = {} if error is not None else dict(offsets)
        if error is None and self._interceptors:
            self._callbacks.append(lambda: self._tell_interceptors(offsets))

    def _offsets(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of a commit: the positions unless the caller gives others."""
        self._check_open()
        if self._settings.group_id is None:
            raise InvalidGroupId("offsets are committed for a group: set group.id")
        return self._subscription.positions() if offsets is None else as_offsets(offsets)

    def _note_commit(
        self,
        ended: asyncio.Future[None] | concurrent.futures.Future[None],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: OnCommit | None,
    ) -> None:
        """The caller's next poll, commit or close reports the results of asynchronous commits."""
        error = ClientClosed("the commit was cancelled") if ended.cancelled() else ended.exception()
        if error is None:
            self._callbacks.append(lambda: self._tell_interceptors(offsets))
        if callback is not None and (error is None or isinstance(error, KafkaError)):
            self._callbacks.append(lambda: callback(offsets, error))

    def _prepare(self, rebalance: Rebalance) -> Callable[[list[TopicPartition]], Any] | None:
        """Prepares the call of a listener: its method, None if there is none to call."""
        subscription = self._subscription
        if rebalance.change is Change.ASSIGNED:
            subscription.set_partitions(
                [*subscription.partitions, *rebalance.partitions], is_awaiting_callback=True
            )
            return None if self._listener is None else self._listener.on_partitions_assigned
        if rebalance.change is Change.LOST:
            rebalance.partitions = sorted(subscription.partitions)
        if self._listener is None or not rebalance.partitions:
            return None
        if rebalance.change is Change.LOST:
            return self._listener.on_partitions_lost
        return self._listener.on_partitions_revoked

    def _finish(self, rebalance: Rebalance) -> None:
        subscription = self._subscription
        if rebalance.change is Change.ASSIGNED:
            for partition in rebalance.partitions:
                state = subscription.partitions.get(partition)
                if state is not None:
                    state.is_awaiting_callback = False
            self._post(self._core.changed)
        else:
            subscription.remove(rebalance.partitions)
        self._core.handover.answer(rebalance)

    def _positions_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = set(partitions)
        return {
            partition: offset
            for partition, offset in self._subscription.positions().items()
            if partition in wanted
        }

    def _run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.popleft()()

    def _tell_interceptors(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log.exception("an interceptor failed in on_commit")

    def _intercept(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:
                log.exception("an interceptor failed in on_consume")
        return records

    def _close_interceptors(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("an interceptor failed in close")

    def _named(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> list[TopicPartition]:
        self._check_open()
        return [as_partition(each) for each in partitions] or list(self._subscription.partitions)

    def _timeout_ms(self, given: float | None) -> float:
        return self._settings.default_api_timeout_ms if given is None else given

    def _times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._check_open()
        # A caller without type checks may have passed anything.
        if not isinstance(timestamps, Mapping):
            raise ConsumerError(
                f"{timestamps!r} is no mapping of partitions to times: give {{('orders', 0): 1_700_000_000_000}}"
            )
        wanted = {as_partition(partition): timestamp for partition, timestamp in timestamps.items()}
        for partition, timestamp in wanted.items():
            if type(timestamp) is not int or timestamp < 0:
                raise ConsumerError(
                    f"{timestamp!r} is no time to look for in {partition}: ms since 1970 are needed"
                )
        return wanted

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._settings.max_poll_records
        if type(max_records) is not int or max_records < 1:
            raise ConsumerError(f"max_records={max_records!r} must be a number, and at least 1")
        return max_records


def interceptors_of(setting: object) -> tuple[ConsumerInterceptor, ...]:
    """The value of interceptor.classes: one interceptor or several, or their classes."""
    if setting is None:
        return ()
    several: Iterable[Any] = setting if isinstance(setting, list | tuple) else (setting,)
    made: list[Any] = [each() if inspect.isclass(each) else each for each in several]
    for each in made:
        if not hasattr(each, "on_consume"):
            _refuse("interceptor.classes", each, "objects like ConsumerInterceptor")
    return tuple(made)


def deserializer_of(setting: object, name: str) -> Deserializer | None:
    """The value of a setting such as `value.deserializer`, as a function of topic and bytes."""
    if setting is None:
        return None
    if inspect.isclass(setting) and hasattr(setting, "deserialize"):
        _refuse(name, setting, f"an object of class {setting.__name__}: {setting.__name__}(…)")
    method = getattr(setting, "deserialize", None)
    if method is not None:
        return cast(Deserializer, method)
    if not callable(setting):
        _refuse(name, setting, "a function (bytes) -> object")
    function = cast(Callable[[bytes], Any], setting)
    return lambda _topic, data: function(data)


def _refuse(name: str, given: object, wanted: str) -> NoReturn:
    raise InvalidConfig(f"{name} takes {wanted}, and not {given!r}")
