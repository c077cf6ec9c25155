"""Many records handed in by one call: made bytes of first, then appended a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mypy_extensions import i64

from barnabas.client.accumulator import TopicQueue, now_ms
from barnabas.client.batches import BATCH_OVERHEAD_BYTES, PartitionQueue, ProducerBatch, record_bound_bytes
from barnabas.client.failures import SerializationError
from barnabas.client.futures import SendManyFuture
from barnabas.client.producer_core import ProducerCore, refuse_timestamp
from barnabas.client.records import HeadersLike
from barnabas.client.serializers import to_headers
from barnabas.records.record import NO_HEADERS, Headers

DICT_FIELDS: Final = frozenset({"value", "key", "partition", "timestamp_ms", "headers"})


class ManyRecords:
    """The records of one `send_many`, serialized before any of them is sent: a bad one stops all.

    A column is None where no record has anything in it.
    """

    __slots__ = ("headers", "highest_partition", "keys", "partitions", "timestamps", "values")

    def __init__(self, values: list[bytes | None]) -> None:
        self.values = values
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int | None] | None = None
        self.partitions: list[int | None] | None = None
        # Of those that records name; whoever sends them looks for it if it is not known.
        self.highest_partition: int | None = None


class ManyAppender:
    __slots__ = (
        "_chosen",
        "_core",
        "_position",
        "_records",
        "_reserved_bytes",
        "_timestamp_ms",
        "_topic",
        "future",
    )

    def __init__(
        self,
        core: ProducerCore,
        topic: TopicQueue,
        partition: int | None,
        timestamp_ms: int | None,
        records: ManyRecords,
    ) -> None:
        self.future = SendManyFuture()
        self._core = core
        self._topic = topic
        self._chosen: PartitionQueue | None = None
        if partition is not None:
            self._chosen = core.queue_for(topic, partition, None, None)
            if self._chosen is None:
                raise core.no_such_partition(topic, partition)
        self._timestamp_ms: i64 = now_ms() if timestamp_ms is None else timestamp_ms
        if self._timestamp_ms < 0:
            refuse_timestamp(self._timestamp_ms)
        self._records = records
        self._position: i64 = 0
        self._reserved_bytes: i64 = 0

    def next_bound_bytes(self) -> int:
        """What has to be waited for before the next call can go on; 0 if all records are in."""
        records = self._records
        position = self._position
        if position == len(records.values):
            return 0
        return (
            record_bound_bytes(
                None if records.keys is None else records.keys[position],
                records.values[position],
                NO_HEADERS if records.headers is None else records.headers[position],
            )
            + BATCH_OVERHEAD_BYTES
        )

    def append(self, reserved_bytes: i64) -> bool:
        """Adds what there is room for; True if that was all. The next record has the room that was waited for."""
        self._reserved_bytes = reserved_bytes
        try:
            return self._append()
        finally:
            if self._reserved_bytes:
                lock = self._core.accumulator.lock
                lock.acquire()
                try:
                    self._core.accumulator.pool.free(self._take_reserved())
                finally:
                    lock.release()

    def _take_reserved(self) -> i64:
        reserved_bytes = self._reserved_bytes
        self._reserved_bytes = 0
        return reserved_bytes

    def _append(self) -> bool:
        core = self._core
        records = self._records
        if core.is_closed:
            core.refuse()
        if (
            records.keys is None
            and records.headers is None
            and records.timestamps is None
            and records.partitions is None
            and (core.partitioner is None or self._chosen is not None)
        ):
            self._position = core.accumulator.append_values(
                self._topic,
                self._chosen,
                records.values,
                self._position,
                self._timestamp_ms,
                self.future,
                self._take_reserved(),
            )
        else:
            self._append_one_by_one()
        core.wake()
        return self._position == len(records.values)

    def _append_one_by_one(self) -> None:
        core = self._core
        records = self._records
        accumulator = core.accumulator
        pool = accumulator.pool
        topic = self._topic
        future = self.future
        # Records that follow each other in one batch are one run of the future.
        run: ProducerBatch | None = None
        run_first: i64 = 0
        run_count: i64 = 0
        run_timestamp: i64 = 0
        position = self._position
        end: i64 = len(records.values)
        while position < end:
            value = records.values[position]
            key = None if records.keys is None else records.keys[position]
            headers = NO_HEADERS if records.headers is None else records.headers[position]
            timestamp = self._timestamp_ms
            if records.timestamps is not None:
                given = records.timestamps[position]
                if given is not None:
                    timestamp = given
            queue = self._chosen
            if queue is None:
                wanted = None if records.partitions is None else records.partitions[position]
                queue = core.queue_for(topic, wanted, key, value)
                if queue is None:
                    # It was there when the records were checked: the topic was made anew.
                    raise core.no_such_partition(topic, wanted)
            bound = record_bound_bytes(key, value, headers)
            batch: ProducerBatch | None = None
            index: i64 = 0
            accumulator.lock.acquire()
            try:
                has_room = pool.has_room(bound + BATCH_OVERHEAD_BYTES)
                if self._reserved_bytes:
                    pool.available_bytes += self._take_reserved()
                    has_room = True
                if has_room:
                    batch = accumulator.append(topic, queue, timestamp, key, value, headers, bound)
                    index = batch.record_count - 1
            finally:
                accumulator.lock.release()
            if batch is None:
                break
            if batch is run and timestamp == run_timestamp and index == run_first + run_count:
                run_count += 1
            else:
                if run is not None:
                    future.add(run, run_first, run_count, run_timestamp)
                run = batch
                run_first = index
                run_count = 1
                run_timestamp = timestamp
            position += 1
        if run is not None:
            future.add(run, run_first, run_count, run_timestamp)
        self._position = position


def many_records(
    core: ProducerCore, topic: TopicQueue, records: Any, keys: Any, headers: HeadersLike | None
) -> ManyRecords:
    """Whatever `send_many` was given, as columns of bytes, checked."""
    if core.value_serializer is None and keys is None and headers is None and isinstance(records, list):
        values = _plain_values(core, topic, records)
        if values is not None:
            return ManyRecords(values)
    made = _collect(core, topic, records, keys, headers)
    for position in range(len(made.values)):
        bound = record_bound_bytes(
            None if made.keys is None else made.keys[position],
            made.values[position],
            NO_HEADERS if made.headers is None else made.headers[position],
        )
        if bound > core.max_record_bytes:
            core.refuse_size(topic, bound)
        given = None if made.timestamps is None else made.timestamps[position]
        if given is not None and given < 0:
            refuse_timestamp(given)
        partition = None if made.partitions is None else made.partitions[position]
        if partition is not None:
            if partition < 0:
                raise core.no_such_partition(topic, partition)
            if made.highest_partition is None or made.highest_partition < partition:
                made.highest_partition = partition
    return made


def _plain_values(core: ProducerCore, topic: TopicQueue, records: list[Any]) -> list[bytes | None] | None:
    """The list itself if it holds nothing but bytes and None, which is the fast way; else None."""
    longest: i64 = 0
    for value in records:
        if isinstance(value, bytes):
            size: i64 = len(value)
            if size > longest:
                longest = size
        elif value is not None:
            return None
    bound = record_bound_bytes(None, None, NO_HEADERS) + longest
    if bound > core.max_record_bytes:
        core.refuse_size(topic, bound)
    return cast("list[bytes | None]", records)


def _collect(
    core: ProducerCore, topic: TopicQueue, records: Any, keys: Any, headers: HeadersLike | None
) -> ManyRecords:
    name = topic.name
    own_headers: list[Headers] | None = None
    if type(records).__module__.partition(".")[0] == "pyarrow":
        columns = arrow_columns(records)
        if keys is None and headers is None:
            plain = _plain_columns(core, columns)
            if plain is not None:
                return plain
        records = columns.pop("value")
        keys = columns.pop("key", keys)
        own_headers = columns.pop("headers", None)
    else:
        columns = {}
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
            raise SerializationError(
                f"send_many takes a list of values, of (key, value) tuples or of dicts, or Arrow columns, and not"
                f" {type(records).__name__}"
            )
    values: list[bytes | None] = []
    found_keys: list[bytes | None] = []
    found_headers: list[Headers] = []
    timestamps: list[int | None] = list(columns.get("timestamp_ms", ()))
    partitions: list[int | None] = list(columns.get("partition", ()))
    shared = NO_HEADERS if headers is None else to_headers(headers)
    has_fields = False
    for record in records:
        key: object = None
        own = shared
        timestamp: object = None
        partition: object = None
        value: object = record
        if isinstance(record, tuple):
            if not 2 <= len(record) <= 3:
                raise SerializationError(
                    f"a tuple is (key, value) or (key, value, headers), and not {record!r}"
                )
            key, value = record[0], record[1]
            if len(record) == 3:
                own = to_headers(record[2])
        elif isinstance(record, dict):
            unknown = record.keys() - DICT_FIELDS
            if unknown:
                raise SerializationError(
                    f"a record as a dict has {', '.join(sorted(DICT_FIELDS))}, and not {sorted(unknown)[0]!r};"
                    " wrap a value that is a dict itself: {'value': {...}}"
                )
            key, value = record.get("key"), record.get("value")
            timestamp, partition = record.get("timestamp_ms"), record.get("partition")
            if record.get("headers") is not None:
                own = to_headers(record["headers"])
            has_fields = True
        values.append(
            value if type(value) is bytes and core.value_serializer is None else core.value_bytes(name, value)
        )
        found_keys.append(None if key is None else core.key_bytes(name, key))
        found_headers.append(own)
        if has_fields:
            timestamps.extend([None] * (len(values) - 1 - len(timestamps)))
            partitions.extend([None] * (len(values) - 1 - len(partitions)))
            timestamps.append(_whole_number(timestamp, "timestamp_ms"))
            partitions.append(_whole_number(partition, "partition"))
    if keys is not None:
        found_keys = [None if key is None else core.key_bytes(name, key) for key in keys]
        if len(found_keys) != len(values):
            raise SerializationError(f"there are {len(values)} values and {len(found_keys)} keys")
    made = ManyRecords(values)
    made.keys = found_keys if any(key is not None for key in found_keys) else None
    if own_headers is not None:
        found_headers = own_headers
    made.headers = found_headers if any(found_headers) else None
    made.timestamps = timestamps if any(each is not None for each in timestamps) else None
    made.partitions = partitions if any(each is not None for each in partitions) else None
    return made


def _plain_columns(core: ProducerCore, columns: dict[str, list[Any]]) -> ManyRecords | None:
    """The columns as they are if keys and values are bytes already; else None."""
    values = columns["value"]
    keys = columns.get("key")
    if core.value_serializer is not None or core.key_serializer is not None:
        return None
    if not _are_bytes(values) or (keys is not None and not _are_bytes(keys)):
        return None
    made = ManyRecords(values)
    made.keys = keys
    made.timestamps = columns.get("timestamp_ms")
    made.partitions = columns.get("partition")
    made.headers = columns.get("headers")
    return made


def _are_bytes(values: list[Any]) -> bool:
    return all(value is None or isinstance(value, bytes) for value in values)


def _whole_number(given: object, what: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise SerializationError(f"{what} is a whole number, and not {given!r}")


def arrow_columns(records: Any) -> dict[str, list[Any]]:
    """The columns of an Arrow table or record batch by name, or of an array of values."""
    import pyarrow as pa

    if isinstance(records, pa.Array | pa.ChunkedArray):
        return {"value": binary_values(records)}
    names = list(records.schema.names)
    if "value" not in names or not set(names) <= DICT_FIELDS:
        raise SerializationError(
            "Arrow columns are value, and if wanted key, partition, timestamp_ms and headers; here are "
            + ", ".join(names)
        )
    for name in ("partition", "timestamp_ms"):
        if name in names and not pa.types.is_integer(records.schema.field(name).type):
            raise SerializationError(
                f"{name} is a column of whole numbers, and not of {records.schema.field(name).type}"
            )
    return {
        name: _header_values(records.column(name))
        if name == "headers"
        else binary_values(records.column(name))
        for name in names
    }


def binary_values(column: Any) -> list[Any]:
    """What an Arrow column has, text as its bytes."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in binary_values(chunk)]
    kind = column.type
    is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (is_large or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        plain: list[Any] = column.to_pylist()
        return plain
    count = len(column)
    if count == 0:
        return []
    validity, ends, data = column.buffers()
    width = 8 if is_large else 4
    ends_bytes = ends.slice(column.offset * width, (count + 1) * width).to_pybytes()
    first = int.from_bytes(ends_bytes[:width], "little")
    last = int.from_bytes(ends_bytes[-width:], "little")
    return _sliced(
        b"" if last == first else data.slice(first, last - first).to_pybytes(),
        ends_bytes,
        width,
        None if validity is None or column.null_count == 0 else validity.to_pybytes(),
        column.offset,
        count,
    )


def _sliced(
    data: bytes, ends: bytes, width: i64, validity: bytes | None, first_bit: i64, count: i64
) -> list[bytes | None]:
    """The values that stand one behind the other in `data`; where each ends is told by little-endian numbers."""
    values: list[bytes | None] = []
    base = _little_endian(ends, 0, width)
    start: i64 = 0
    number: i64 = 0
    while number < count:
        number += 1
        end = _little_endian(ends, number * width, width) - base
        bit = first_bit + number - 1
        if validity is not None and not (i64(validity[bit >> 3]) >> (bit & 7)) & 1:
            values.append(None)
        else:
            values.append(data[start:end])
        start = end
    return values


def _little_endian(data: bytes, position: i64, width: i64) -> i64:
    low: i64 = (
        i64(data[position])
        | i64(data[position + 1]) << 8
        | i64(data[position + 2]) << 16
        | i64(data[position + 3]) << 24
    )
    if width == 4:
        return low
    return low | _little_endian(data, position + 4, 4) << 32


def _header_values(column: Any) -> list[Headers]:
    """Headers out of lists of structs of a key and a value."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return [headers for chunk in column.chunks for headers in _header_values(chunk)]
    names: list[Any] = column.values.field("key").to_pylist()
    contents = binary_values(column.values.field("value"))
    ends: list[Any] = column.offsets.to_pylist()
    are_null: list[Any] = column.is_null().to_pylist()
    found: list[Headers] = []
    for number in range(len(column)):
        if are_null[number] or ends[number] == ends[number + 1]:
            found.append(NO_HEADERS)
        else:
            here = range(ends[number], ends[number + 1])
            found.append(to_headers([(names[index], contents[index]) for index in here]))
    return found
