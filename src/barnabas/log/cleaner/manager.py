"""Which log is cleaned next.

A log that cannot be cleaned, because its bytes are damaged, is passed over until the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.clock import Clock
from barnabas.errors import KafkaError, KafkaStorageError
from barnabas.log import names
from barnabas.log.cleaner.clean_offsets import CleanOffsets
from barnabas.log.cleaner.exclusion import CleaningAborted, CleaningExclusion
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried

if TYPE_CHECKING:
    from barnabas.log.cleaner.cleaner import Cleaned, Cleaner, OnBytes
    from barnabas.log.cleaner.dirty import LogToClean

logger = logging.getLogger(__name__)


class CleanerManager:
    """Chooses a log, has it cleaned, and writes down how far it is clean.

    Threads: the cleaner's threads call `clean_next`. Any thread uses `exclusion` and `offsets`.
    """

    def __init__(
        self,
        clock: Clock,
        logs: Callable[[], Mapping[TopicPartition, tuple[LogDirectory, PartitionLog]]],
    ) -> None:
        """`logs` returns the logs to choose from, each with its directory."""
        self.exclusion = CleaningExclusion()
        self.offsets = CleanOffsets()
        self._clock = clock
        self._logs = logs
        self._uncleanable: set[TopicPartition] = set()

    def clean_next(self, cleaner: Cleaner, on_bytes: OnBytes = lambda _: None) -> Cleaned | None:
        """Cleans the dirtiest log that is due; None if none is. `on_bytes` may slow the cleaner down, or stop it."""
        chosen = self._choose()
        if chosen is None:
            return None
        directory, target = chosen
        partition = target.log.topic_partition
        end_offset: int | None = None
        try:
            cleaned = cleaner.clean(
                target.log,
                target.first_dirty_offset,
                target.end_offset,
                partial(self._advance, partition, on_bytes),
            )
            end_offset = cleaned.end_offset
            logger.info(
                "cleaned %s from %d to %d: %d of %d records and %d of %d bytes stay, in %d ms",
                partition,
                target.first_dirty_offset,
                cleaned.end_offset,
                cleaned.written_records,
                cleaned.read_records,
                cleaned.written_bytes,
                cleaned.read_bytes,
                cleaned.duration_ms,
            )
            return cleaned
        except CleaningAborted:
            logger.info("the cleaning of %s was stopped", partition)
            return None
        except StorageFailure as failure:
            directory.fail(failure)
            return None
        except KafkaStorageError as error:
            logger.info("the cleaning of %s ended: %s", partition, error)
            return None
        except Exception as error:
            # Damaged bytes, most likely. Other logs can still be cleaned.
            logger.error("%s cannot be cleaned", partition, exc_info=error)
            self._uncleanable.add(partition)
            return None
        finally:
            self._finish(directory, partition, end_offset)

    def _advance(self, partition: TopicPartition, on_bytes: OnBytes, size_bytes: int) -> None:
        self.exclusion.check(partition)
        on_bytes(size_bytes)

    def forget(self, directory: LogDirectory, partitions: Collection[TopicPartition]) -> None:
        """For logs that are deleted: others may come in their place."""
        self._uncleanable.difference_update(partitions)
        self.offsets.forget(directory, partitions)

    def _choose(self) -> tuple[LogDirectory, LogToClean] | None:
        # A broker cleans nothing in the first seconds, and starts without the code for it.
        from barnabas.log.cleaner.dirty import log_to_clean

        now_ms = self._clock.now_ms()
        with self.exclusion.changed:
            checkpoints: dict[str, dict[TopicPartition, int]] = {}
            best: tuple[LogDirectory, LogToClean] | None = None
            for partition, (directory, log) in unhurried(self._logs().items()):
                config = log.config
                if not config.compact or config.barnabas_deletion_hold:
                    continue
                if not self.exclusion.is_free(partition) or partition in self._uncleanable:
                    continue
                try:
                    if directory.path not in checkpoints:
                        checkpoints[directory.path] = dict(
                            directory.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT)
                        )
                    candidate = log_to_clean(log, checkpoints[directory.path].get(partition), now_ms)
                except KafkaStorageError as error:
                    logger.error("%s is not cleaned: %s", partition, error)
                    continue
                except KafkaError as error:
                    logger.error("%s cannot be cleaned: %s", partition, error)
                    self._uncleanable.add(partition)
                    continue
                if candidate.is_due and (best is None or candidate.dirty_ratio > best[1].dirty_ratio):
                    best = (directory, candidate)
            if best is not None:
                self.exclusion.begin(best[1].log.topic_partition)
            return best

    def _finish(self, directory: LogDirectory, partition: TopicPartition, end_offset: int | None) -> None:
        try:
            if end_offset is not None and not directory.is_offline:
                self.offsets.update(directory, partition, end_offset)
        except KafkaStorageError as error:
            directory.fail(error)
        finally:
            self.exclusion.end(partition)
