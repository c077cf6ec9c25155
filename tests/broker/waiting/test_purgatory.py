from __future__ import annotations

from barnabas.broker.waiting.purgatory import DelayedOperation, Purgatory
from barnabas.broker.waiting.timing_wheel import Timer


class Waiting(DelayedOperation):
    def __init__(self, timeout_ms: int = 1_000) -> None:
        super().__init__(timeout_ms)
        self.ready = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("completed")

    def on_expiration(self) -> None:
        self.events.append("expired")


def test_what_is_ready_at_once_never_waits() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer)
    operation = Waiting()
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["completed"]
    assert purgatory.watched == 0
    assert timer.next_due_ms() is None


def test_an_event_completes_it_once_under_whichever_key() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer)
    operation = Waiting()
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    operation.ready = True
    assert purgatory.check_and_complete("nothing waits here") == 0
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    timer.advance(10_000)
    assert operation.events == ["completed"]
    assert purgatory.watched == 0


def test_the_time_out_completes_it_once() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer)
    operation = Waiting(timeout_ms=30)
    purgatory.try_complete_else_watch(operation, ["a"])
    timer.advance(29)
    assert operation.events == []
    timer.advance(30)
    assert operation.events == ["completed", "expired"]
    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert operation.events == ["completed", "expired"]


def test_completed_operations_are_swept_from_the_lists_of_quiet_keys() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer, purge_interval=100)
    for number in range(1_000):
        operation = Waiting()
        purgatory.try_complete_else_watch(operation, ["busy", f"quiet-{number}"])
        operation.ready = True
        assert purgatory.check_and_complete("busy") == 1
        assert purgatory.watched <= 100
    assert purgatory.purge() > 0
    assert purgatory.watched == 0


class CountingSweeps(Purgatory):
    sweeps = 0

    def purge(self) -> int:
        self.sweeps += 1
        return super().purge()


def test_operations_that_really_wait_are_not_swept_over_and_over() -> None:
    purgatory = CountingSweeps(Timer(0), purge_interval=10)
    for _ in range(5_000):
        purgatory.try_complete_else_watch(Waiting(), ["a"])
    assert purgatory.watched == 5_000
    assert 0 < purgatory.sweeps < 15


def test_answering_may_bring_the_next_request_under_the_same_key() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer)
    following = Waiting()

    class Pipelined(Waiting):
        def on_complete(self) -> None:
            super().on_complete()
            purgatory.try_complete_else_watch(following, ["a"])

    first, second = Pipelined(), Waiting()
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(second, ["a"])
    first.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.watched == 2
    second.ready = following.ready = True
    assert purgatory.check_and_complete("a") == 2
    assert purgatory.watched == 0


def test_operations_of_a_key_that_is_gone_are_handed_out() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer)
    operation = Waiting()
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.cancel_for_key("a") == [operation]
    assert purgatory.cancel_for_key("a") == []
    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.events == ["completed"]


def test_only_operations_that_have_not_ended_count_as_waiting() -> None:
    timer = Timer(0)
    purgatory = Purgatory(timer)
    by_event, by_time, by_force = Waiting(), Waiting(timeout_ms=10), Waiting()
    for operation in (by_event, by_time, by_force):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (purgatory.waiting, purgatory.waiting_keys) == (3, 6)
    by_event.ready = True
    purgatory.check_and_complete("a")
    assert (purgatory.waiting, purgatory.waiting_keys) == (2, 4)
    timer.advance(10)
    assert (purgatory.waiting, purgatory.waiting_keys) == (1, 2)
    by_force.force_complete()
    assert (purgatory.waiting, purgatory.waiting_keys) == (0, 0)
    assert purgatory.watched > 0, "their entries are dropped later, all at once"
    purgatory.purge()
    assert (purgatory.watched, purgatory.waiting, purgatory.waiting_keys) == (0, 0, 0)


def test_an_operation_that_ends_while_it_is_put_in_does_not_wait() -> None:
    purgatory = Purgatory(Timer(0))
    operation = EndsAtTheSecondLook()
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (purgatory.waiting, purgatory.waiting_keys) == (0, 0)


class EndsAtTheSecondLook(Waiting):
    def try_complete(self) -> bool:
        was_ready, self.ready = self.ready, True
        return was_ready and self.force_complete()
