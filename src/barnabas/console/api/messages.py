"""Records of a topic: pages, one record, and new records."""

from __future__ import annotations

import base64
import binascii
import json
from enum import StrEnum
from typing import Any, Final

from barnabas.client.producer.producer import Producer
from barnabas.client.reader.partition_reader import PartitionReader
from barnabas.console.api.call import INT64_MAX, Call, Console
from barnabas.console.search.browse import PAGE_RECORDS_MAX, read_page, records_in
from barnabas.console.search.language import parse_query
from barnabas.console.search.matcher import Matcher
from barnabas.console.search.plan import HITS_MAX, INT64_MIN, SearchRequest, chosen_partitions, ranges_of
from barnabas.console.search.render import render_record
from barnabas.errors import InvalidRequest, OffsetOutOfRange
from barnabas.model import TopicPartition
from barnabas.records.record import Record
from barnabas.views.offsets import LogRange, log_ranges

RECORD_BYTES_MAX: Final = 4 << 20
HEADERS_MAX: Final = 100
DELIVERY_TIMEOUT_MS: Final = 15_000
PAGE_RECORDS: Final = 50
WARNINGS_MAX: Final = 20
# What pipelines and Kafka Connect add to records that they could not process.
ERROR_HEADER_PREFIXES: Final = ("__barnabas.errors.", "__connect.errors.")
ORIGIN_HEADERS: Final = tuple(f"{each}topic" for each in ERROR_HEADER_PREFIXES)


class Position(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


def search_request(call: Call, *, hits_max: int = HITS_MAX, hits: int = 100) -> SearchRequest:
    """The parameters that searches, tails and downloads share; raises BadQuery for a query that cannot be read."""
    request = SearchRequest(
        topic=call.path["topic"],
        query=call.text("q"),
        partitions=call.partitions(),
        start_offset=call.integer("start_offset", 0),
        end_offset=call.integer("end_offset", INT64_MAX),
        start_ms=call.integer("start_ms", INT64_MIN),
        end_ms=call.integer("end_ms", INT64_MAX),
        is_committed=call.flag("committed"),
        is_oldest_first=call.choice("order", Position.NEWEST) is Position.OLDEST,
        hits_max=call.integer("limit", hits, 1, hits_max),
    )
    Matcher(parse_query(request.query))
    return request


def page(console: Console, call: Call) -> Any:
    """Records without a search, the newest or the oldest first, from the given offsets or time on."""
    position = call.choice("order", Position.NEWEST)
    request = search_request(call, hits_max=PAGE_RECORDS_MAX, hits=PAGE_RECORDS)
    if request.query:
        raise InvalidRequest("this page takes no q; use …/search")
    admin = console.sampler.admin
    topic = admin.describe_topics([request.topic])[request.topic]
    cursor = _cursor(call.text("cursor"))
    partitions = chosen_partitions(topic, tuple(cursor) or request.partitions)
    found_ranges = ranges_of(admin, topic, request, partitions)
    ranges = found_ranges.by_partition
    for partition, found in list(ranges.items()):
        left = cursor.get(partition.partition)
        if left is not None:
            first, end = max(found.first_offset, left[0]), min(found.end_offset, left[1])
            ranges[partition] = LogRange(first_offset=min(first, end), end_offset=end)
    mask = console.masks.of(request.topic)
    result = read_page(
        console.connection.consumer_settings(is_committed=request.is_committed),
        {partition: found for partition, found in ranges.items() if found.first_offset < found.end_offset},
        lambda partition, record: render_record(request.topic, partition, record, mask=mask),
        records_max=request.hits_max,
        is_backwards=position is Position.NEWEST,
    )
    records = [each.form for each in result.records if each.timestamp < request.end_ms]
    if console.schemas is not None:
        for record in records:
            console.schemas.decorate(record)
    return {
        "records": records,
        "cursor": json.dumps(
            {str(each): [left.first_offset, left.end_offset] for each, left in result.next.items()}
        )
        if result.next
        else None,
        "warnings": [*found_ranges.warnings[:WARNINGS_MAX], *result.warnings],
    }


def _cursor(text: str) -> dict[int, tuple[int, int]]:
    """Where the next page begins: the offsets that are left of each partition."""
    if not text:
        return {}
    try:
        form = json.loads(text)
        return {int(partition): (int(first), int(end)) for partition, (first, end) in form.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidRequest("cursor is not one that an earlier page has returned") from None


def show_record(console: Console, call: Call) -> Any:
    """One record, with key and value up to 4 MiB."""
    partition = TopicPartition(call.path["topic"], int(call.path["partition"]))
    rendered = render_record(
        partition.topic,
        partition.partition,
        _record(console, partition, int(call.path["offset"])),
        limit_bytes=RECORD_BYTES_MAX,
        mask=console.masks.of(partition.topic),
    )
    if console.schemas is not None:
        console.schemas.decorate(rendered)
    return rendered


def resend(console: Console, call: Call) -> Any:
    """Copies a record as it is. A dead letter goes back to its topic, without the error.

    A record with masked parts goes nowhere else: the copy would show them.
    """
    partition = TopicPartition(call.path["topic"], int(call.path["partition"]))
    wanted = call.body_text("to", required=False)
    if wanted and console.masks.of(partition.topic) is not None:
        raise InvalidRequest(
            f"records of {partition.topic} are masked, so they are not copied to a topic of your choice; a dead letter"
            " can go back to its own topic: leave out to"
        )
    record = _record(console, partition, int(call.path["offset"]))
    origin = next((value for name, value in record.headers if name in ORIGIN_HEADERS and value), None)
    target = wanted or (None if origin is None else origin.decode())
    if target is None:
        raise InvalidRequest("the record is no dead letter, so name the topic: to")
    kept = [each for each in record.headers if not each[0].startswith(ERROR_HEADER_PREFIXES)]
    return _send(console, target, record.key, record.value, kept, None)


def _record(console: Console, partition: TopicPartition, offset: int) -> Record:
    bounds = log_ranges(console.sampler.admin, [partition])[partition]
    if not bounds.first_offset <= offset < bounds.end_offset:
        raise OffsetOutOfRange(
            f"{partition} has offsets {bounds.first_offset} to {bounds.end_offset - 1}, and not {offset}"
        )
    reader = PartitionReader(console.connection.consumer_settings(is_committed=False))
    try:
        wanted = LogRange(first_offset=offset, end_offset=offset + 1)
        for record in records_in(reader, partition, wanted, []):
            return record
    finally:
        reader.close()
    raise OffsetOutOfRange(f"{partition} has no record at offset {offset}: it is a marker, or was compacted")


def produce(console: Console, call: Call) -> Any:
    """Sends one record and waits until it is acknowledged."""
    topic = call.path["topic"]
    partition = call.body.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise InvalidRequest("partition must be a number, or null to let the key decide")
    headers = call.body.get("headers") or []
    if not isinstance(headers, list) or len(headers) > HEADERS_MAX:
        raise InvalidRequest(f"headers must be a list of at most {HEADERS_MAX}, each with name and value")
    pairs = []
    for each in headers:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InvalidRequest("each header needs a name and a value")
        pairs.append((each["name"], _bytes(each.get("value"), "a header's value")))
    key, value = _bytes(call.body.get("key"), "key"), _bytes(call.body.get("value"), "value")
    return _send(console, topic, key, value, pairs, partition)


def _send(
    console: Console,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
) -> dict[str, Any]:
    # A topic that does not exist is an error, not a topic to create.
    console.sampler.admin.describe_topics([topic])
    settings = {**console.connection.producer, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS}
    settings |= {"request.timeout.ms": DELIVERY_TIMEOUT_MS // 2, "linger.ms": 0}
    with Producer(settings) as producer:
        future = producer.send(topic, value, key, partition=partition, headers=headers)
        sent = future.result(DELIVERY_TIMEOUT_MS / 1000)
    return {
        "topic": topic,
        "partition": sent.partition,
        "offset": sent.offset,
        "timestamp_ms": sent.timestamp_ms,
    }


def _bytes(form: Any, what: str) -> bytes | None:
    """`{"text": …}` or `{"base64": …}`, or null."""
    if form is None:
        return None
    if isinstance(form, dict):
        text, encoded = form.get("text"), form.get("base64")
        if isinstance(text, str):
            return text.encode()
        if isinstance(encoded, str):
            try:
                return base64.b64decode(encoded, validate=True)
            except (ValueError, binascii.Error):
                raise InvalidRequest(f"{what}: base64 has other characters") from None
    raise InvalidRequest(f'{what} must be null, {{"text": …}} or {{"base64": …}}')
