"""The groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from barnabas.groups.classic_group import ClassicGroup


class GroupTable:
    __slots__ = ("classic", "other")

    def __init__(self) -> None:
        self.classic: dict[str, ClassicGroup] = {}
        # Groups of other protocols, with the name of their type. They are known so that they are left alone.
        self.other: dict[str, str] = {}

    def is_other(self, group_id: str) -> bool:
        return group_id in self.other
