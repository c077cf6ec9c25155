"""Many records handed in by one call: made bytes of first, then appended a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mypy_extensions import i64

from barnabas.client.failures import SerializationError
from barnabas.client.producer.accumulator import TopicQueue, now_ms
from barnabas.client.producer.batches import BATCH_OVERHEAD_BYTES, PartitionQueue, record_bound_bytes
from barnabas.client.producer.bytes_columns import BytesColumn, ListedBytes, arrow_bytes, binary_values
from barnabas.client.producer.core import ProducerCore, given_timestamp, refuse_timestamp
from barnabas.client.producer.futures import Run, SendManyFuture
from barnabas.client.producer.records import HeadersLike
from barnabas.client.producer.serializers import to_headers
from barnabas.records.record import NO_HEADERS, Headers

# How many records are added before others get at the lock.
RECORDS_A_HOLD: Final = 256
DICT_FIELDS: Final = frozenset({"value", "key", "partition", "timestamp_ms", "headers"})


class ManyRecords:
    """The records of one `send_many`, serialized before any of them is sent: a bad one stops all.

    A column is None where no record has anything in it.
    """

    __slots__ = ("headers", "highest_partition", "keys", "partitions", "timestamps", "values")

    def __init__(self, values: BytesColumn, keys: BytesColumn | None = None) -> None:
        self.values = values
        self.keys = keys
        self.headers: list[Headers] | None = None
        self.timestamps: list[int | None] | None = None
        self.partitions: list[int | None] | None = None
        # The topics that records name; the caller asks for their metadata if it is unknown.
        self.highest_partition: int | None = None

    @property
    def count(self) -> int:
        return self.values.count

    @property
    def has_only_values(self) -> bool:
        return (
            self.keys is None and self.headers is None and self.timestamps is None and self.partitions is None
        )

    def bound_bytes(self, position: i64) -> i64:
        """No record is larger than this bound."""
        return record_bound_bytes(
            None if self.keys is None else self.keys.at(position),
            self.values.at(position),
            NO_HEADERS if self.headers is None else self.headers[position],
        )


class ManyAppender:
    __slots__ = (
        "_chosen",
        "_core",
        "_last_runs",
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
        self._timestamp_ms: i64 = now_ms() if timestamp_ms is None else given_timestamp(timestamp_ms)
        self._records = records
        self._position: i64 = 0
        self._reserved_bytes: i64 = 0
        # The last run of each partition.
        self._last_runs: list[Run | None] = []
        if self._chosen is None and core.partitioner is not None:
            self._ask_partitioner()

    def _ask_partitioner(self) -> None:
        """Lets the user's partitioner choose for all records, while no lock is held."""
        records = self._records
        partitions: list[int | None] = []
        for position in range(records.count):
            partition = None if records.partitions is None else records.partitions[position]
            if partition is None:
                key = None if records.keys is None else records.keys.at(position)
                queue = self._core.queue_for(self._topic, None, key, records.values.at(position))
                assert queue is not None
                partition = queue.partition
            partitions.append(partition)
        records.partitions = partitions

    def next_bound_bytes(self) -> int:
        """The memory to wait for before the next call can continue; 0 if all records are appended."""
        if self._position == self._records.count:
            return 0
        return self._records.bound_bytes(self._position) + BATCH_OVERHEAD_BYTES

    def append(self, reserved_bytes: i64) -> bool:
        """Adds the records that there is room for; True if these were all. The next record has the granted room."""
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
        if records.has_only_values:
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
            while self._position < records.count:
                if not self._append_some():
                    break
        core.wake()
        return self._position == records.count

    def _append_some(self) -> bool:
        """Adds the next records under one hold of the lock; False if there is no room for one of them."""
        core = self._core
        records = self._records
        accumulator = core.accumulator
        pool = accumulator.pool
        topic = self._topic
        last_runs = self._last_runs
        position = self._position
        end: i64 = min(records.values.count, position + RECORDS_A_HOLD)
        accumulator.lock.acquire()
        try:
            while position < end:
                value = records.values.at(position)
                key = None if records.keys is None else records.keys.at(position)
                headers = NO_HEADERS if records.headers is None else records.headers[position]
                timestamp = self._timestamp_ms
                if records.timestamps is not None:
                    given = records.timestamps[position]
                    if given is not None:
                        timestamp = given
                queue = self._chosen
                if queue is None:
                    wanted = None if records.partitions is None else records.partitions[position]
                    if wanted is None:
                        queue = accumulator.choose(topic, key)
                    elif wanted < len(topic.partitions):
                        queue = topic.partitions[wanted]
                    else:
                        # It existed when the records were checked: the topic was recreated.
                        raise core.no_such_partition(topic, wanted)
                bound = record_bound_bytes(key, value, headers)
                if self._reserved_bytes:
                    pool.available_bytes += self._take_reserved()
                elif not pool.has_room(bound + BATCH_OVERHEAD_BYTES):
                    return False
                batch = accumulator.append(topic, queue, timestamp, key, value, headers, bound)
                position += 1
                partition = queue.partition
                while len(last_runs) <= partition:
                    last_runs.append(None)
                last = last_runs[partition]
                run = self.future.add_one(batch, batch.record_count - 1, timestamp, last)
                if run is not last:
                    last_runs[partition] = run
        finally:
            self._position = position
            accumulator.lock.release()
        return True


def many_records(
    core: ProducerCore, topic: TopicQueue, records: Any, keys: Any, headers: HeadersLike | None
) -> ManyRecords:
    """The argument of `send_many`, as columns of bytes, checked."""
    made: ManyRecords | None = None
    if core.value_serializer is None and keys is None and headers is None:
        if isinstance(records, list):
            made = _plain_values(records)
        elif core.key_serializer is None and _is_arrow(records):
            made = _plain_columns(arrow_columns(records))
    if made is None:
        made = _collect(core, topic, records, keys, headers)
    _check(core, topic, made)
    return made


def _check(core: ProducerCore, topic: TopicQueue, made: ManyRecords) -> None:
    bound = record_bound_bytes(None, None, NO_HEADERS) + made.values.longest_bytes()
    if made.keys is not None:
        bound += made.keys.longest_bytes()
    if made.headers is not None or bound > core.max_record_bytes:
        for position in range(made.count):
            bound = made.bound_bytes(position)
            if bound > core.max_record_bytes:
                core.refuse_size(topic, bound)
    if made.timestamps is not None:
        for given in made.timestamps:
            if given is not None and given < 0:
                refuse_timestamp(given)
    if made.partitions is not None:
        for partition in made.partitions:
            if partition is not None:
                if partition < 0:
                    raise core.no_such_partition(topic, partition)
                if made.highest_partition is None or made.highest_partition < partition:
                    made.highest_partition = partition


def _plain_values(records: list[Any]) -> ManyRecords | None:
    """The list itself if it holds nothing but bytes and None, which is the fast way; else None."""
    for value in records:
        if value is not None and not isinstance(value, bytes):
            return None
    return ManyRecords(ListedBytes(records))


def _plain_columns(columns: dict[str, Any]) -> ManyRecords | None:
    """Arrow columns as they are if values and keys are bytes or text; else None."""
    values = arrow_bytes(columns["value"])
    keys = arrow_bytes(columns["key"]) if "key" in columns else None
    if values is None or (keys is None and "key" in columns):
        return None
    made = ManyRecords(values, keys)
    if "timestamp_ms" in columns:
        made.timestamps = columns["timestamp_ms"].to_pylist()
    if "partition" in columns:
        made.partitions = columns["partition"].to_pylist()
    if "headers" in columns:
        made.headers = _header_values(columns["headers"])
    return made


def _is_arrow(records: object) -> bool:
    return type(records).__module__.partition(".")[0] == "pyarrow"


def _collect(
    core: ProducerCore, topic: TopicQueue, records: Any, keys: Any, headers: HeadersLike | None
) -> ManyRecords:
    name = topic.name
    own_headers: list[Headers] | None = None
    columns: dict[str, list[Any]] = {}
    if _is_arrow(records):
        columns = {
            each: _header_values(column) if each == "headers" else binary_values(column)
            for each, column in arrow_columns(records).items()
        }
        records = columns.pop("value")
        keys = columns.pop("key", keys)
        own_headers = columns.pop("headers", None)
    elif isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
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
    has_keys = any(key is not None for key in found_keys)
    made = ManyRecords(ListedBytes(values), ListedBytes(found_keys) if has_keys else None)
    if own_headers is not None:
        found_headers = own_headers
    made.headers = found_headers if any(found_headers) else None
    made.timestamps = timestamps if any(each is not None for each in timestamps) else None
    made.partitions = partitions if any(each is not None for each in partitions) else None
    return made


def _whole_number(given: object, what: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise SerializationError(f"{what} is a whole number, and not {given!r}")


def arrow_columns(records: Any) -> dict[str, Any]:
    """The columns of an Arrow table or record batch by name, or of an array of values."""
    import pyarrow as pa

    if isinstance(records, pa.Array | pa.ChunkedArray):
        return {"value": records}
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
    return {name: records.column(name) for name in names}


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
