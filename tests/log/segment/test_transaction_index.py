from __future__ import annotations

import struct

import pytest

from barnabas.log.file_system import CREATE
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.model import Offset, ProducerId
from tests.log.simulated import SimulatedFileSystem

PATH = "/00000000000000000000.txnindex"


def transaction(
    producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int
) -> AbortedTransaction:
    return AbortedTransaction(
        ProducerId(producer_id), Offset(first_offset), Offset(last_offset), Offset(last_stable_offset)
    )


ABORTED = [
    transaction(0, 0, 10, 11),
    transaction(1, 5, 15, 13),
    transaction(2, 18, 35, 25),
    transaction(3, 32, 50, 40),
]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def index(fs: SimulatedFileSystem) -> TransactionIndex:
    index = TransactionIndex(fs, PATH, 0, exists=False)
    for aborted in ABORTED:
        index.append(aborted)
    return index


def test_there_is_no_file_before_the_first_entry(fs: SimulatedFileSystem) -> None:
    index = TransactionIndex(fs, PATH, 0, exists=False)
    assert index.collect(0, 100) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.flush()
    index.close()
    assert not fs.exists(PATH)
    index.append(ABORTED[0])
    assert fs.read_file(PATH) == struct.pack(">hqqqq", 0, 0, 0, 10, 11)


def test_a_file_that_was_thought_to_be_there(fs: SimulatedFileSystem) -> None:
    index = TransactionIndex(fs, PATH, 0, exists=True)
    index.reset()
    index.sanity_check()
    assert index.entries() == []
    assert not fs.exists(PATH)


def test_it_is_read_back(fs: SimulatedFileSystem, index: TransactionIndex) -> None:
    index.close()
    assert TransactionIndex(fs, PATH, 0, exists=True).entries() == ABORTED


def test_transactions_are_collected_for_a_read(index: TransactionIndex) -> None:
    assert index.collect(0, 100) == (ABORTED, False)
    assert index.collect(0, 32) == (ABORTED[:3], True)
    assert index.collect(0, 35) == (ABORTED, True)
    assert index.collect(10, 35) == (ABORTED, True)
    assert index.collect(11, 35) == (ABORTED[1:], True)
    assert index.collect(20, 41) == (ABORTED[2:], False)
    assert index.collect(60, 70) == ([], False)


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (10, 0), (11, 1), (50, 3), (51, 4)])
def test_truncation_goes_by_the_end_of_transactions(
    fs: SimulatedFileSystem, index: TransactionIndex, offset: int, left: int
) -> None:
    index.truncate_to(offset)
    assert index.entries() == ABORTED[:left]
    assert fs.size_of(PATH) == 34 * left
    index.append(transaction(9, 60, 70, 71))
    index.evict()
    assert index.entries() == [*ABORTED[:left], transaction(9, 60, 70, 71)]


def test_a_reset_file_stays_empty(fs: SimulatedFileSystem, index: TransactionIndex) -> None:
    index.reset()
    assert index.entries() == []
    assert fs.size_of(PATH) == 0


def test_half_an_entry_is_none(fs: SimulatedFileSystem, index: TransactionIndex) -> None:
    index.close()
    fs.open(PATH, CREATE).truncate(3 * 34 + 20)
    again = TransactionIndex(fs, PATH, 0, exists=True)
    assert again.entries() == ABORTED[:3]
    again.append(ABORTED[3])
    again.evict()
    assert again.entries() == ABORTED


def test_sanity(fs: SimulatedFileSystem, index: TransactionIndex) -> None:
    index.sanity_check()
    index.close()
    with pytest.raises(CorruptIndex, match="ends before base offset 12"):
        TransactionIndex(fs, PATH, 12, exists=True).sanity_check()
    fs.open(PATH, CREATE).pwrite(b"\0\1", 34)
    with pytest.raises(CorruptIndex, match=r"entry 1 .* unknown version 1"):
        TransactionIndex(fs, PATH, 0, exists=True).sanity_check()


def test_it_is_renamed_and_removed(fs: SimulatedFileSystem, index: TransactionIndex) -> None:
    index.rename(PATH + ".deleted")
    assert index.entries() == ABORTED
    assert fs.list_dir("/") == [PATH[1:] + ".deleted"]
    index.remove()
    index.close()
    assert fs.list_dir("/") == []
    index.rename(PATH)
    assert not index.exists
