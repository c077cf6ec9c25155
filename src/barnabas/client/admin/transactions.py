"""Transactions and the producers that write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.client.admin.core import AdminCore, by_topic, none_if_negative, outcome_of, raise_for
from barnabas.client.admin.results import (
    FencedProducer,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from barnabas.client.admin.topics import names_of
from barnabas.client.arguments import as_number, as_numbers, as_text, as_texts, as_tp, as_tps
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_producers_response import PartitionResponse
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.describe_transactions_response import TransactionState
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions_request import ListTransactionsRequest
from barnabas.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

# From version 2 on a marker has its version of the protocol, and only the coordinator knows it.
_WRITE_TXN_MARKERS_VERSION: Final = 1


class TransactionsAdmin(AdminCore):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that the brokers know, by id.

        `pattern` (an RE2 expression) needs a broker of 4.1, `running_longer_than_ms` one of 3.8.
        """
        request = ListTransactionsRequest(
            state_filters=as_texts(states, "states", "['Ongoing']"),
            producer_id_filters=as_numbers(producer_ids, "producer_ids"),
            duration_filter=-1
            if running_longer_than_ms is None
            else as_number(running_longer_than_ms, "running_longer_than_ms"),
            transactional_id_pattern=None if pattern is None else as_text(pattern, "pattern"),
        )

        async def ask(node: int) -> list[TransactionListing]:
            answer = await self._request(node, request)
            raise_for(answer.error_code, None, f"transactions of broker {node}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise InvalidRequest(f"transactions have no state {unknown}")
            return [
                TransactionListing(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.transaction_state,
                    coordinator=node,
                )
                for each in answer.transaction_states
            ]

        by_broker = await self._every_broker("listing transactions", ask, timeout_ms)
        return sorted(
            (each for listed in by_broker.values() for each in listed), key=lambda each: each.transactional_id
        )

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TransactionDescription]:
        """The transactions of these transactional ids: state, start, and the partitions that they write to."""

        async def ask(node: int | None, ids: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            assert node is not None
            answer = await self._request(node, DescribeTransactionsRequest(transactional_ids=ids))
            return {
                each.transactional_id: outcome_of(
                    each.error_code, None, f"transactional id {each.transactional_id}", _described(each, node)
                )
                for each in answer.transaction_states
            }

        return await self._each(
            "describing transactions",
            names_of(transactional_ids, "transactional id"),
            self._at_transaction_coordinators,
            ask,
            timeout_ms,
            forget=self._forget_transaction_coordinator,
        )

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that have lately written to partitions, as their leaders or one broker know them."""
        asked_broker = None if broker_id is None else as_number(broker_id, "broker_id")

        async def at_broker(asked: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError | None]:
            await self._metadata(())
            return dict.fromkeys(asked, asked_broker)

        async def ask(
            node: int | None, asked: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in by_topic(asked).items()
                ]
            )
            answer = await self._request(node, request)
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): outcome_of(
                    each.error_code, each.error_message, partition, _producers(each)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each(
            "describing producers",
            as_tps(partitions),
            self._at_leaders if broker_id is None else at_broker,
            ask,
            timeout_ms,
        )

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
        timeout_ms: float | None = None,
    ) -> None:
        """Ends a transaction that hangs on a partition, without its coordinator; changes nothing else.

        `describe_producers` shows ids and epochs. Do not use this for a transaction that its coordinator still knows:
        `fence_producers` ends it.
        """
        chosen = as_tp(partition, "partition")
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=as_number(producer_id, "producer_id"),
                    producer_epoch=as_number(producer_epoch, "producer_epoch"),
                    coordinator_epoch=as_number(coordinator_epoch, "coordinator_epoch"),
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=chosen.topic, partition_indexes=[chosen.partition])],
                )
            ]
        )

        async def ask(
            node: int | None, asked: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            answer = await self._request(node, request, _WRITE_TXN_MARKERS_VERSION)
            return {
                (written := TopicPartition(topic.name, each.partition_index)): outcome_of(
                    each.error_code, None, f"{written}, producer {producer_id}", None
                )
                for marker in answer.markers
                for topic in marker.topics
                for each in topic.partitions
            }

        await self._each("aborting a transaction", [chosen], self._at_leaders, ask, timeout_ms)

    async def abort_hanging_transaction(
        self, partition: TopicPartition, start_offset: int, *, timeout_ms: float | None = None
    ) -> ProducerState:
        """Ends the transaction that begins at an offset of a partition; the producer that had left it open."""
        chosen = as_tp(partition, "partition")
        as_number(start_offset, "start_offset")
        producers = (await self.describe_producers([chosen], timeout_ms=timeout_ms))[chosen]
        for producer in producers:
            if producer.transaction_start_offset == start_offset:
                break
        else:
            raise InvalidRequest(f"no open transaction of {chosen} begins at offset {start_offset}")
        await self.abort_transaction(
            chosen,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=-1 if producer.coordinator_epoch is None else producer.coordinator_epoch,
            timeout_ms=timeout_ms,
        )
        return producer

    async def fence_producers(
        self, transactional_ids: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, FencedProducer]:
        """Shuts out the producers that use these ids now; a transaction that is open is aborted."""

        async def ask(node: int | None, ids: list[str]) -> dict[str, FencedProducer | KafkaError]:
            fenced: dict[str, FencedProducer | KafkaError] = {}
            for transactional_id in ids:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=int(self._timeout_ms(timeout_ms)),
                )
                answer = await self._request(node, request)
                fenced[transactional_id] = outcome_of(
                    answer.error_code,
                    None,
                    f"transactional id {transactional_id}",
                    FencedProducer(answer.producer_id, answer.producer_epoch),
                )
            return fenced

        return await self._each(
            "fencing producers",
            names_of(transactional_ids, "transactional id"),
            self._at_transaction_coordinators,
            ask,
            timeout_ms,
            forget=self._forget_transaction_coordinator,
        )


def _described(transaction: TransactionState, node: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=transaction.transactional_id,
        coordinator=node,
        state=transaction.transaction_state,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.transaction_timeout_ms,
        start_ms=none_if_negative(transaction.transaction_start_time_ms),
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in transaction.topics
                for index in topic.partitions
            )
        ),
    )


def _producers(partition: PartitionResponse) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp_ms=each.last_timestamp,
            coordinator_epoch=none_if_negative(each.coordinator_epoch),
            transaction_start_offset=none_if_negative(each.current_txn_start_offset),
        )
        for each in partition.active_producers
    )
