"""Transactions and producers: open ones, hanging ones, and their end."""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.admin.errors import AdminErrors
from barnabas.console.api.call import Call, Console
from barnabas.errors import InvalidRequest
from barnabas.model import TopicPartition

TRANSACTIONS_MAX: Final = 500
PRODUCERS_MAX: Final = 1_000


def list_transactions(console: Console, call: Call) -> Any:
    admin = console.sampler.admin
    listed = admin.list_transactions()
    shown = sorted(listed, key=lambda each: each.transactional_id)[:TRANSACTIONS_MAX]
    try:
        described = admin.describe_transactions([each.transactional_id for each in shown]) if shown else {}
    except AdminErrors as failed:
        # A transactional id may have expired since it was listed.
        described = dict(failed.results)
    return {
        "total": len(listed),
        "transactions": [
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "coordinator": each.coordinator,
                "timeout_ms": each.timeout_ms,
                "start_ms": each.start_ms,
                "partitions": [str(partition) for partition in each.partitions[:100]],
            }
            for each in described.values()
        ],
    }


def list_producers(console: Console, call: Call) -> Any:
    """The producers that have written to a topic. `is_hanging` marks a transaction beyond its coordinator's memory."""
    name = call.path["topic"]
    admin = console.sampler.admin
    topic = admin.describe_topics([name])[name]
    found = admin.describe_producers([TopicPartition(name, each.partition) for each in topic.partitions])
    known = {each.producer_id for each in admin.list_transactions() if each.state not in ("Empty", "Dead")}
    rows = [
        {
            "partition": partition.partition,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "last_timestamp_ms": each.last_timestamp_ms,
            "transaction_start_offset": each.transaction_start_offset,
            "is_hanging": each.transaction_start_offset is not None and each.producer_id not in known,
        }
        for partition, states in sorted(found.items())
        for each in states
    ]
    return {"total": len(rows), "producers": rows[:PRODUCERS_MAX]}


def abort_hanging(console: Console, call: Call) -> Any:
    """Aborts a transaction that its coordinator has forgotten."""
    partition = TopicPartition(call.path["topic"], call.body_integer("partition"))
    start_offset = call.body_integer("start_offset")
    producer = console.sampler.admin.abort_hanging_transaction(partition, start_offset)
    return {
        "producer_id": producer.producer_id,
        "partition": partition.partition,
        "start_offset": start_offset,
    }


def fence(console: Console, call: Call) -> Any:
    """Fences the producers of a transactional id, and aborts their open transaction."""
    transactional_id = call.path["id"]
    if call.body.get("confirm") != transactional_id:
        raise InvalidRequest(f"to fence the producers, repeat the id: confirm must be {transactional_id!r}")
    fenced = console.sampler.admin.fence_producers([transactional_id])[transactional_id]
    return {"producer_id": fenced.producer_id, "producer_epoch": fenced.producer_epoch}
