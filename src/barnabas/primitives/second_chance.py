"""A bound on objects that can be dropped and brought back: open files, index files in memory.

The algorithm is second chance. A use of an object only sets its flag, which costs nothing. When the total of all costs
exceeds the limit, the objects are visited in the order of their arrival: an object that was used since its last visit
moves to the end of the queue, and any other is evicted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Resident:
    """A thing that is held as long as there is room. Its user sets `recently_used` at each use."""

    __slots__ = ("recently_used",)

    def __init__(self) -> None:
        self.recently_used = False

    def evict(self) -> None:
        """Releases what the object holds. Any thread may call it: users keep their own references."""
        raise AssertionError("a resident says how it lets go of what it holds")


class SecondChance:
    """Bounds the total cost of the residents that are admitted; the newest alone may exceed it."""

    __slots__ = ("_costs", "_lock", "limit", "total_cost")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total_cost = 0
        self._costs: OrderedDict[Resident, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._costs)

    def admit(self, resident: Resident, cost: int) -> None:
        """Takes a resident in, or notes its new cost, and evicts others until the total is within the limit."""
        with self._lock:
            self.total_cost += cost - self._costs.pop(resident, 0)
            self._costs[resident] = cost
            # Other threads may use residents at the same time: each resident gets at most one second chance.
            chances = len(self._costs)
            while self.total_cost > self.limit and len(self._costs) > 1:
                candidate, candidate_cost = self._costs.popitem(last=False)
                if candidate is resident or (candidate.recently_used and chances > 0):
                    chances -= 1
                    candidate.recently_used = False
                    self._costs[candidate] = candidate_cost
                else:
                    self.total_cost -= candidate_cost
                    candidate.evict()

    def discard(self, resident: Resident) -> None:
        """Forgets a resident that has let go by itself."""
        with self._lock:
            self.total_cost -= self._costs.pop(resident, 0)
