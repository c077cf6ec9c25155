from __future__ import annotations

from barnabas.primitives.second_chance import Resident, SecondChance


class Guest(Resident):
    def __init__(self) -> None:
        super().__init__()
        self.is_in = True

    def evict(self) -> None:
        self.is_in = False


def test_the_total_stays_within_the_limit() -> None:
    pool = SecondChance(10)
    guests = [Guest() for _ in range(20)]
    for guest in guests:
        pool.admit(guest, 3)
        assert pool.total_cost <= 10
    assert sum(guest.is_in for guest in guests) == len(pool) == 3
    assert guests[-1].is_in


def test_what_is_used_stays() -> None:
    pool = SecondChance(3)
    favourite = Guest()
    pool.admit(favourite, 1)
    for _ in range(20):
        pool.admit(Guest(), 1)
        favourite.recently_used = True
    assert favourite.is_in
    for _ in range(5):
        pool.admit(Guest(), 1)
    assert not favourite.is_in


def test_a_new_cost_replaces_the_old() -> None:
    pool = SecondChance(10)
    guest, other = Guest(), Guest()
    pool.admit(other, 4)
    pool.admit(guest, 4)
    pool.admit(guest, 6)
    assert pool.total_cost == 10
    assert other.is_in
    pool.admit(guest, 7)
    assert not other.is_in
    assert pool.total_cost == 7


def test_one_alone_may_exceed_the_limit() -> None:
    pool = SecondChance(10)
    giant = Guest()
    pool.admit(giant, 100)
    assert giant.is_in
    pool.admit(Guest(), 1)
    assert not giant.is_in
    assert pool.total_cost == 1


def test_what_is_discarded_is_forgotten() -> None:
    pool = SecondChance(10)
    guest = Guest()
    pool.admit(guest, 5)
    pool.discard(guest)
    pool.discard(guest)
    assert pool.total_cost == len(pool) == 0
    assert guest.is_in
