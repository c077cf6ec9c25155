"""The brokers of one host: their ids follow one another, and the store knows them.

A start with fewer brokers than before must not put partitions out of reach. The store has a node for each broker that
has used it, so that a single broker notices it, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from barnabas.coordination.metadata import tree
from barnabas.coordination.metadata.identity import NO_BROKER_ID, check_owner, known_broker_ids
from barnabas.coordination.store.contract import Delete, NoNode, Store, children_of, ensure_path
from barnabas.errors import InvalidConfig
from barnabas.model import BrokerId

FIRST_BROKER_ID: Final = 0
# A message lists at most this many partitions.
NAMES_MAX: Final = 10


async def settle_host_brokers(
    store: Store, *, configured: int, in_directories: int | None, count: int, address: str
) -> BrokerId:
    """The id of the first of `count` brokers: configured, of the log directories, of the store, or 0.

    Raises InvalidConfig if these contradict, or if a broker that would not run has replicas. `address` is that of the
    first broker.
    """
    check_owner(configured, in_directories)
    known = await known_broker_ids(store)
    first = configured if in_directories is None else in_directories
    if first == NO_BROKER_ID:
        first = min(known, default=FIRST_BROKER_ID)
    await confine(store, range(first, first + count), known, address)
    for broker_id in range(first, first + count):
        await ensure_path(store, tree.known_broker_path(broker_id))
    return BrokerId(first)


async def confine(store: Store, broker_ids: Sequence[int], known: Collection[int], address: str) -> None:
    """Forgets the known brokers that are not among these. Raises InvalidConfig if one of them has replicas."""
    gone = sorted(set(known).difference(broker_ids))
    if not gone:
        return
    stranded = await _replicas_on(store, gone)
    if stranded:
        count_before = max([*known, *broker_ids]) - broker_ids[0] + 1
        raise _out_of_reach(stranded, gone, count_before, address)
    await store.multi([Delete(tree.known_broker_path(each)) for each in gone])


async def _replicas_on(store: Store, broker_ids: Collection[int]) -> list[str]:
    """Partitions that have a replica there."""
    found = []
    topics = await children_of(store, tree.TOPICS)
    for name, node in zip(
        topics, await store.get_all([tree.topic_path(each) for each in topics]), strict=True
    ):
        if node is None:
            raise NoNode(tree.topic_path(name))
        for partition, assignment in sorted(tree.decode_topic(name, node[0]).partitions.items()):
            if not set(assignment.replicas).isdisjoint(broker_ids):
                found.append(f"{name}-{partition}")
    return found


def _out_of_reach(
    stranded: Sequence[str], gone: Sequence[int], count_before: int, address: str
) -> InvalidConfig:
    more = len(stranded) - NAMES_MAX
    listed = ", ".join(stranded[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
    left_out = ",".join(map(str, gone))
    who = f"broker {gone[0]}" if len(gone) == 1 else f"brokers {left_out}"
    return InvalidConfig(
        f"{len(stranded)} partitions have replicas on {who}, which would not run, and would be out of reach: {listed}."
        f" Start with --brokers {count_before}, and move them away with `barnabas reassign plan -b {address}"
        f" --all --internal --without {left_out} -o plan.json && barnabas reassign run -b {address} plan.json`; then"
        " fewer brokers are enough"
    )
