"""Consumer groups: members, lag, and the reset of offsets with a preview."""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.admin.results import CommittedOffset, GroupMember
from barnabas.console.api.call import Call, Console, choice
from barnabas.errors import GroupIdNotFound, InvalidRequest, NonEmptyGroup
from barnabas.model import TopicPartition
from barnabas.views.group_reset import ResetTo, new_offsets
from barnabas.views.lag import group_lag

GROUPS_MAX: Final = 500
ROWS_MAX: Final = 2_000


def list_groups(console: Console, call: Call) -> Any:
    now = console.sampler.current()
    wanted = call.text("search").lower()
    found = sorted(
        (each for each in console.sampler.admin.list_groups() if wanted in each.group_id.lower()),
        key=lambda each: each.group_id,
    )
    return {
        "total": len(found),
        "groups": [
            {
                "group_id": each.group_id,
                "state": each.state,
                "type": each.type,
                "protocol_type": each.protocol_type,
                "lag": now.lag_of_group(each.group_id),
                "topics": len({partition.topic for partition in now.committed.get(each.group_id, ())}),
            }
            for each in found[:GROUPS_MAX]
        ],
    }


def show_group(console: Console, call: Call) -> Any:
    group_id = call.path["group"]
    admin = console.sampler.admin
    group = admin.describe_groups([group_id])[group_id]
    lag = group_lag(admin, group)
    return {
        "group_id": group_id,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [_member(each) for each in group.members[:ROWS_MAX]],
        "lag": sum(each.lag or 0 for each in lag),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed_offset": each.committed_offset,
                "end_offset": each.end_offset,
                "lag": each.lag,
                "metadata": each.metadata[:200],
                "member_id": None if each.member is None else each.member.member_id,
            }
            for each in lag[:ROWS_MAX]
        ],
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [str(each) for each in member.assignment[:100]],
        "partition_count": len(member.assignment),
    }


def reset_offsets(console: Console, call: Call) -> Any:
    """Computes new offsets, and sets them if `execute` is true. A group with members is refused, as in Kafka."""
    group_id = call.path["group"]
    admin = console.sampler.admin
    to = choice("to", call.body_text("to") or "", ResetTo)
    value = call.body_integer("value", 0)
    committed = admin.list_group_offsets(group_id)
    partitions = _chosen(call, committed)
    if not partitions:
        raise InvalidRequest(f"{group_id} has no committed offsets, so name a topic")
    new = new_offsets(admin, partitions, committed, to, value)
    execute = call.body.get("execute") is True
    if execute:
        _refuse_if_active(console, group_id)
        admin.alter_group_offsets(group_id, new)
        console.sampler.refresh()
    return {
        "executed": execute,
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed_offset": committed[each].offset if each in committed else None,
                "new_offset": new[each],
            }
            for each in partitions[:ROWS_MAX]
        ],
    }


def _chosen(call: Call, committed: dict[TopicPartition, CommittedOffset]) -> list[TopicPartition]:
    topic = call.body_text("topic", required=False)
    numbers = call.body.get("partitions")
    if numbers is not None and (
        not isinstance(numbers, list) or not all(type(each) is int and each >= 0 for each in numbers)
    ):
        raise InvalidRequest("partitions must be a list of numbers")
    if topic is not None and numbers:
        return [TopicPartition(topic, each) for each in numbers]
    return sorted(each for each in committed if topic in (None, each.topic))


def _refuse_if_active(console: Console, group_id: str) -> None:
    try:
        described = console.sampler.admin.describe_groups([group_id])[group_id]
    except GroupIdNotFound:
        return
    if described.members:
        raise NonEmptyGroup(
            f"{group_id} has {len(described.members)} members, which would ignore the reset: stop them first"
        )


def delete_group(console: Console, call: Call) -> Any:
    group_id = call.path["group"]
    if call.body.get("confirm") != group_id:
        raise InvalidRequest(f"to delete the group, repeat its name: confirm must be {group_id!r}")
    console.sampler.admin.delete_groups([group_id])
    console.sampler.refresh()
    return {"deleted": group_id}
