"""Records for clients of old versions, in older formats.

A small batch is converted at once. The worker process converts larger ones, after all partitions have been read. A
request converts as much as its share of the worker allows. The partitions after that have no records in the response,
and the client asks for them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.replication.topic_metrics import TopicMetrics
from barnabas.broker.requests.conversions import RequestShare
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import KafkaError, RequestTimedOut
from barnabas.model import Offset
from barnabas.primitives.file_slice import FileSlice
from barnabas.protocol.messages.fetch_response import PartitionData
from barnabas.records.compression import ExpandsTooFar
from barnabas.records.convert import ConvertedRecords, down_convert
from barnabas.records.header import iterate_headers
from barnabas.records.jobs import converted_records, down_convert_job
from barnabas.records.validate import BUILT_BRIEFLY_BYTES, BUILT_BRIEFLY_RECORDS

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


class Unconverted:
    """Records to convert before the response is sent."""

    __slots__ = ("answer", "fetch_offset", "metrics", "records", "to_magic")

    def __init__(
        self,
        answer: PartitionData,
        records: FileSlice,
        to_magic: int,
        fetch_offset: int,
        metrics: TopicMetrics,
    ) -> None:
        self.answer = answer
        self.records = records
        self.to_magic = to_magic
        self.fetch_offset = fetch_offset
        self.metrics = metrics


def convert_small(records: FileSlice, to_magic: int, fetch_offset: int) -> ConvertedRecords | None:
    """None if the conversion would take long."""
    if records.size_bytes > BUILT_BRIEFLY_BYTES:
        return None
    data = records.read()
    if sum(header.record_count for header in iterate_headers(data)) > BUILT_BRIEFLY_RECORDS:
        return None
    try:
        return down_convert(
            data,
            to_magic=to_magic,
            first_offset=Offset(fetch_offset),
            max_decompressed_bytes=BUILT_BRIEFLY_BYTES,
        )
    except ExpandsTooFar:
        return None


async def convert_fetched(broker: Broker, exchange: AnyExchange, unconverted: list[Unconverted]) -> None:
    share = broker.conversions.share(exchange.session)
    for each in unconverted:
        if exchange.connection.is_closed:
            return
        try:
            converted = await _convert(broker, share, each)
        except RequestTimedOut:
            each.answer.records = b""
        except KafkaError as error:
            each.answer.records = b""
            each.answer.error_code = error.code
        else:
            each.answer.records = converted.data
            each.metrics.fetch_message_conversions += converted.converted_count


async def _convert(broker: Broker, share: RequestShare, each: Unconverted) -> ConvertedRecords:
    data = await broker.background.run(each.records.read)
    return converted_records(await share.run(down_convert_job(data, each.to_magic, each.fetch_offset)))
