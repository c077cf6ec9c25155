"""A shell around the coordinator for tests: a log in memory, timers on a manual clock, and every reply noted once."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

from barnabas.clock import ManualClock
from barnabas.errors import KafkaError, NotCoordinator
from barnabas.groups.caller import Caller
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.records import OffsetCommitRecord, parse_record
from barnabas.groups.settings import GroupSettings
from barnabas.groups.timers import TimerKey
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.primitives.decision import Decision
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.header import BatchHeader, iterate_headers
from barnabas.records.layout import ControlRecordType
from barnabas.records.reader import iterate_batches
from tests.groups.topics import Image

R = TypeVar("R")

GROUP = "group"


class Shell:
    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        clock: ManualClock | None = None,
        log: bytes = b"",
        image: Image | None = None,
    ) -> None:
        self.settings = settings or GroupSettings()
        self.clock = clock or ManualClock()
        self.log = bytearray(log)
        self.next_offset = 0
        self._uuid_count = 0
        self.timers: dict[TimerKey, int] = {}
        self.replies: dict[Caller, Any] = {}
        self.append_error: KafkaError | None = None
        # Appends whose commit is still to come, if they are held, with the offset where each ends.
        self.holds_commits = False
        self.uncommitted: deque[tuple[Decision, int]] = deque()
        self.coordinator = GroupCoordinator(self.settings, self._new_uuid)
        self.image = Image()
        self.set_topics(image or self.image)
        for header, records in iterate_batches(bytes(self.log)):
            self.coordinator.replay(header, records)
            self.next_offset = header.next_offset
        self.high_watermark = self.next_offset
        self.carry_out(self.coordinator.loaded(self.now_ms))

    def set_topics(self, image: Image) -> None:
        before, self.image = self.image.topics, image
        names = before.keys() | image.topics.keys()
        changed = [name for name in names if before.get(name) != image.topics.get(name)]
        has_new = any(name not in before for name in changed)
        self.coordinator.topics_changed(image, changed, has_new=has_new)

    def _new_uuid(self) -> str:
        self._uuid_count += 1
        return f"uuid-{self._uuid_count}"

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def reloaded(self, settings: GroupSettings | None = None, *, loses_uncommitted: bool = False) -> Shell:
        """Another broker's coordinator on the same log, or on what is committed of it."""
        log = bytes(self.log)
        if loses_uncommitted:
            log = log[: sum(batch.size_bytes for batch in self.committed_batches())]
        other = Shell(settings or self.settings, clock=self.clock, log=log, image=self.image)
        # No id is given twice.
        other._uuid_count = self._uuid_count
        return other

    def carry_out(self, decision: Decision) -> None:
        for key, delay_ms in decision.timers.items():
            assert isinstance(key, TimerKey)
            if delay_ms is None:
                self.timers.pop(key, None)
            else:
                assert delay_ms >= 0
                self.timers[key] = self.now_ms + delay_ms
        for key, absent_delay_ms in decision.timers_if_absent.items():
            assert isinstance(key, TimerKey)
            self.timers.setdefault(key, self.now_ms + absent_delay_ms)
        assert not decision.other_work
        assert not decision.parts
        if not decision.records:
            assert decision.then is None
            if decision.replies and self.coordinator.has_uncommitted:
                # They may tell of what is not committed.
                self.uncommitted.append((decision, self.next_offset))
            else:
                self._send_replies(decision, None)
            return
        if self.append_error is not None:
            self._settle(decision, self.append_error)
            return
        base_offset = Offset(self.next_offset)
        self._append(decision, base_offset)
        if not self.holds_commits and not self.uncommitted:
            self.high_watermark = self.next_offset
            self.coordinator.appended(decision, base_offset, self.high_watermark)
            self._settle(decision, None)
            return
        self.coordinator.appended(decision, base_offset, self.high_watermark)
        self.uncommitted.append((decision, self.next_offset))
        if not self.holds_commits:
            self.commit()

    def _settle(self, decision: Decision, error: KafkaError | None) -> None:
        self._send_replies(decision, error)
        if decision.then is not None:
            self.carry_out(decision.then(error, self.now_ms))

    def _send_replies(self, decision: Decision, error: KafkaError | None) -> None:
        for caller, response in decision.replies:
            assert isinstance(caller, Caller)
            sent = response if error is None else caller.refusal(response, error)
            assert caller not in self.replies, f"two answers for one request: {sent}"
            encode(sent, caller.version)
            self.replies[caller] = sent

    def _append(self, decision: Decision, base_offset: Offset) -> None:
        producer = decision.producer
        builder = BatchBuilder(
            base_offset=base_offset,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            base_sequence=-1 if producer is None else 0,
            is_transactional=producer is not None,
        )
        for record in decision.records:
            builder.append(TimestampMs(self.now_ms), record.key_bytes(), record.value_bytes())
        self.log += builder.build()
        self.next_offset += len(decision.records)

    def commit(self, error: KafkaError | None = None) -> None:
        """All that has been appended is committed; or nothing is, for the same reason."""
        while self.uncommitted:
            self.commit_next(error)
        if error is None:
            self._advance(self.next_offset)

    def commit_next(self, error: KafkaError | None = None) -> None:
        decision, end_offset = self.uncommitted.popleft()
        if error is None:
            self._advance(end_offset)
        self._settle(decision, error)

    def _advance(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.coordinator.committed(high_watermark)

    def committed_batches(self) -> list[BatchHeader]:
        headers = iterate_headers(bytes(self.log))
        return [header for header in headers if header.next_offset <= self.high_watermark]

    def unload(self) -> None:
        """The partition is another broker's. Nobody waits any longer."""
        last = self.coordinator.unloaded(self.now_ms)
        self._send_replies(last, None)
        self.timers = {key: due_ms for key, due_ms in self.timers.items() if key not in last.timers}
        while self.uncommitted:
            decision, _ = self.uncommitted.popleft()
            gone = NotCoordinator()
            self._send_replies(decision, gone)
            if decision.then is not None:
                self._send_replies(decision.then(gone, self.now_ms), None)

    def in_flight(self) -> set[tuple[str, int]]:
        """The group and the partition of each offset that is appended and not committed."""
        places = set()
        for header, records in iterate_batches(bytes(self.log)):
            if header.next_offset > self.high_watermark and not header.is_control:
                for parsed in map(parse_record, records):
                    if isinstance(parsed, OffsetCommitRecord):
                        places.add((parsed.key.group, parsed.key.partition))
        return places

    def kept(self) -> list[Caller]:
        """The callers whose replies wait for a commit."""
        return [
            caller
            for decision, _ in self.uncommitted
            for caller, _ in decision.replies
            if isinstance(caller, Caller)
        ]

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        self.log += end_transaction_marker(
            control_type=ControlRecordType.COMMIT if is_committed else ControlRecordType.ABORT,
            timestamp=TimestampMs(self.now_ms),
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
            base_offset=Offset(self.next_offset),
        )
        self.next_offset += 1
        if not self.holds_commits:
            self.commit()
        self.coordinator.marker_appended(
            ProducerId(producer_id),
            Offset(self.next_offset - 1),
            self.high_watermark,
            is_committed=is_committed,
        )

    def advance_ms(self, duration_ms: int) -> None:
        """Lets time pass, timer by timer."""
        until_ms = self.now_ms + duration_ms
        for _ in range(100_000):
            due = min(self.timers.items(), key=lambda timer: timer[1], default=None)
            if due is None or due[1] > until_ms:
                break
            self.clock.advance_ms(due[1] - self.now_ms)
            del self.timers[due[0]]
            self.carry_out(self.coordinator.expire(due[0], self.now_ms))
        else:
            raise AssertionError("timers never come to an end")
        self.clock.advance_ms(until_ms - self.now_ms)

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        client_id: str = "client",
    ) -> Caller:
        caller = caller_of(version, client_id)
        named = {"range": subscription("topic")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in named.items()
            ],
        )
        self.carry_out(self.coordinator.membership.join(caller, request, self.now_ms))
        return caller

    def reply(self, caller: Caller, response_type: type[R]) -> R:
        response = self.replies[caller]
        assert isinstance(response, response_type)
        return response

    def joined(self, caller: Caller) -> JoinGroupResponse:
        return self.reply(caller, JoinGroupResponse)


def caller_of(version: int, client_id: str = "") -> Caller:
    """The shell notes what its callers are told, and does not call them."""
    return Caller(version=version, client_id=client_id, client_host="/127.0.0.1", answer=_unheard)


def _unheard(response: object) -> None:
    raise AssertionError("the shell notes replies itself")


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
