"""Puts a broker together and runs it: the one place that knows all parts.

Starting: configuration, addresses, directories, store, broker id and cluster id, controller, logs; then the listeners
accept. Stopping goes the other way round, and whatever writes to logs ends before they are closed; whatever was
acknowledged is then on the disk, and the log directories say that they were left in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random, SystemRandom
from typing import Final

from barnabas import __version__
from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.runtime import Surroundings
from barnabas.broker.coordinators.transaction_markers import TransactionMarkers
from barnabas.broker.coordinators.transaction_runtime import TransactionRuntime
from barnabas.broker.dispatch import Dispatcher, build_endpoints
from barnabas.broker.metrics.broker_metrics import FlushTimes, register_metrics
from barnabas.broker.quotas.connections import ConnectionQuota
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.log_dir_mover import LogDirMover
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.conversions import (
    JOB_CPU_S,
    JOB_TIMEOUT_S,
    WORKER_MEMORY_BYTES,
    WORKER_MODULE,
    Conversions,
)
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.telemetry.client_metrics import ClientMetrics
from barnabas.broker.upkeep.automatic_topics import AutomaticTopics
from barnabas.broker.upkeep.background import Background
from barnabas.broker.upkeep.config_updates import ConfigUpdates, effective_config
from barnabas.broker.upkeep.image_follower import ImageFollower
from barnabas.broker.upkeep.maintenance import CleanerThread, start_maintenance
from barnabas.broker.waiting.loop_timer import LoopTimer
from barnabas.broker.waiting.tasks import Tasks
from barnabas.broker.waiting.turns import Turns
from barnabas.clock import Clock, SystemClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.config.live_settings import LiveSettings
from barnabas.config.log_config import LogConfig
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.identity import settle_broker_id
from barnabas.coordination.store.contract import StoreError
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.coordination.writing.producer_ids import ProducerIdBlocks
from barnabas.errors import InvalidConfig, KafkaStorageError
from barnabas.log.file_system import DiskFileSystem, StorageFailure
from barnabas.log.manager.directory_check import emptied, explained, find_directories
from barnabas.log.manager.loading import LoadProgress
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.metrics.registry import Registry
from barnabas.model import TopicPartition
from barnabas.net.addresses import advertised_host, why_unreachable
from barnabas.net.http_endpoint import HttpEndpoint
from barnabas.net.listener import SYSTEM_DEFAULT, ConnectionLimits, Connections, cannot_listen
from barnabas.net.request_memory import UNLIMITED
from barnabas.net.worker_process import WorkerProcess

log = logging.getLogger(__name__)

RECOVERY_REPORT_NS: Final = 1_000_000_000
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Server:
    """One broker. `start` returns when it answers; `stop` when everything is on the disk."""

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._directories = [os.path.abspath(directory) for directory in config.log_dirs]
        self._accepted_losses = frozenset(map(os.path.abspath, config.barnabas_accept_loss))
        self._clock = clock or SystemClock()
        self._rng: Random = SystemRandom()
        self._fs = DiskFileSystem()
        self._metrics = Registry()
        self._tasks = Tasks()
        # What has been opened, to be closed in the opposite order.
        self._open = contextlib.AsyncExitStack()
        self._stopping = asyncio.Event()
        self._replicas: ReplicaManager | None = None
        # Why the broker cannot go on, if it cannot.
        self._failure = ""
        self.ports: dict[str, int] = {}
        self.metrics_port = 0

    async def start(self) -> None:
        """Raises KafkaError or OSError with a message for people if the broker cannot run."""
        _allow_many_files()
        try:
            await self._start()
        except (KafkaStorageError, StoreError) as error:
            await self.stop()
            failure = _failure_behind(error)
            if failure is not None:
                raise explained(self._fs, os.path.dirname(failure.path), failure) from error
            raise KafkaStorageError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        config = self._config
        _check_security(config)
        directories = self._directories
        # Whatever can keep the broker from running is found out before anything is written.
        background = Background(loop, config.background_threads)
        self._open.callback(background.stop)
        connections = Connections(loop, background.executor, _limits(config))
        self._open.callback(connections.close)
        listeners = [
            (each, connections.bind(each.host, each.port, each.listener_name)) for each in config.endpoints
        ]
        metrics_endpoint = await self._bind_metrics()
        advertised = _advertised(config, {each.listener_name: bound.port for each, bound in listeners})

        found = find_directories(self._fs, directories)
        manager = LogManager(
            directories,
            fs=self._fs,
            clock=self._clock,
            scheduler=background,
            config_of=lambda topic: self._log_config(cache, settings, topic),
            settings=_manager_settings(config),
            rng=self._rng,
            on_flush=FlushTimes(self._metrics).observe,
            knows_topic=lambda topic: topic in cache.image.topics,
            # A directory may fail in any thread.
            on_offline=lambda directory, partitions: _call(
                loop, partial(self._take_offline, manager, directory.path, partitions)
            ),
        )
        for path in found.emptied:
            if path not in self._accepted_losses:
                manager.directory(path).fail(emptied(path))
        manager.unnamed_directories = [
            path for path in found.unnamed_directories if path not in self._accepted_losses
        ]
        manager.lock()
        self._open.callback(manager.release)
        store = await self._open_store([each.path for each in manager.live_directories()])
        session = await store.connect()
        broker_id = await settle_broker_id(
            session,
            configured=config.broker_id,
            in_directories=found.broker_id,
            reserved_broker_max_id=config.reserved_broker_max_id,
        )
        settings = LiveSettings(config)
        controller = await Controller.open(
            session,
            broker_id=broker_id,
            settings=settings,
            endpoints=advertised,
            clock=self._clock,
            rng=self._rng,
            cluster_id=found.cluster_id,
            clean_stop=found.is_clean,
        )
        self._open.push_async_callback(controller.close)
        cache = controller.cache
        writer = ClusterWriter(session, cache)
        self._open.push_async_callback(writer.close)
        if store.may_have_lost:
            await writer.hold_deletion(cache.image.topics)
        config = settings.current = effective_config(config, cache.image, broker_id)
        manager.settings = _manager_settings(config)
        timer = LoopTimer(loop)
        self._open.callback(timer.close)
        replicas = self._replicas = ReplicaManager(
            broker_id,
            loop,
            DelayedOperations(
                loop,
                timer,
                fetch_purge_interval=config.fetch_purgatory_purge_interval_requests,
                produce_purge_interval=config.producer_purgatory_purge_interval_requests,
                delete_records_purge_interval=config.delete_records_purgatory_purge_interval_requests,
            ),
            partial(_open_log, manager),
            partial(_open_log, manager, is_new=True),
            background.executor,
        )
        await loop.run_in_executor(None, manager.open, RecoveryReport(self._clock))
        self._open.push_async_callback(self._close_logs, manager)
        for directory in manager.live_directories():
            directory.claim(cache.image.cluster_id, broker_id, [*directories, *manager.unnamed_directories])

        def use(changed: BrokerConfig) -> None:
            connections.change_limits(_limits(changed))
            manager.settings = _manager_settings(changed)

        use(config)
        quotas = Quotas()
        connections.creation_quota = ConnectionQuota(quotas, self._clock, lambda: settings.current)
        updates = ConfigUpdates(cache, settings, replicas, manager, self._tasks, use)
        mover = LogDirMover(
            manager,
            replicas,
            self._tasks,
            lambda: settings.current.replica_alter_log_dirs_io_max_bytes_per_second,
        )
        self._open.push_async_callback(self._tasks.stop)
        follower = ImageFollower(controller, cache, replicas, manager, quotas, updates, mover, self._tasks)
        await follower.begin()
        surroundings = Surroundings(
            cache, settings, controller.auto_create_topics, replicas, self._tasks, timer, self._clock
        )
        groups = GroupRuntime(surroundings, self._rng)
        groups.begin()
        markers = TransactionMarkers(replicas, groups, self._clock, timeout_ms=config.request_timeout_ms)
        blocks = ProducerIdBlocks(session, broker_id)
        self._open.push_async_callback(blocks.close)
        blocks.raise_to(follower.next_producer_id)
        producer_ids = ProducerIds(blocks, self._tasks)
        transactions = TransactionRuntime(surroundings, markers, producer_ids)
        if transactions.topic in follower.adopted:
            transactions.learn_producer_ids()
        transactions.begin()

        client_metrics = ClientMetrics(cache, settings, self._clock, self._rng, self._metrics)
        client_metrics.begin()
        conversions = Conversions(
            self._clock,
            self._tasks,
            lambda: WorkerProcess(
                loop,
                background.executor,
                WORKER_MODULE,
                str(JOB_CPU_S),
                str(WORKER_MEMORY_BYTES),
                timeout_s=JOB_TIMEOUT_S,
            ),
        )
        self._open.callback(conversions.close)

        broker = Broker(
            clock=self._clock,
            metrics=self._metrics,
            metadata=cache,
            settings=settings,
            controller=controller,
            writer=writer,
            automatic_topics=AutomaticTopics(controller.auto_create_topics, replicas, self._tasks),
            client_metrics=client_metrics,
            log_manager=manager,
            log_dir_mover=mover,
            replicas=replicas,
            fetch_sessions=FetchSessions(
                max_sessions=config.max_incremental_fetch_session_cache_slots, rng=self._rng
            ),
            groups=groups,
            markers=markers,
            quotas=quotas,
            producer_ids=producer_ids,
            tasks=self._tasks,
            transactions=transactions,
            conversions=conversions,
            turns=Turns(loop, self._clock),
        )
        self.broker = broker
        self._open.push_async_callback(self._end_work, broker, connections, timer, background)
        start_maintenance(manager, background)
        if config.log_cleaner_enable:
            cleaner = CleanerThread(manager, self._clock)
            cleaner.start()
            self._open.callback(cleaner.stop)
        register_metrics(broker, connections, loop)
        if metrics_endpoint is not None:
            await metrics_endpoint.start_serving()

        log.info("Barnabas %s, broker %d of cluster %s", __version__, broker_id, cache.image.cluster_id)
        log.info(
            "%d topics, %d partitions in %s",
            len(cache.image.topics),
            len(replicas),
            ", ".join(directories),
        )
        endpoints = build_endpoints(broker)
        for each, bound in listeners:
            self.ports[each.listener_name] = bound.port
            bound.open(Dispatcher(broker, each.listener_name, endpoints))
        for each in advertised:
            log.info("Listening on %s", each)
            self._tasks.start(_warn_if_unreachable(each))

    def watch_signals(self) -> None:
        """Has the signals to stop noted from now on, while the broker starts too."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            log.info("stopping")
            self._stopping.set()
            for number in STOP_SIGNALS:
                # Whoever asks twice does not want to wait.
                loop.remove_signal_handler(number)

        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stop)

    async def run_until_signal(self) -> None:
        """Raises KafkaStorageError if it was not a signal that has ended the broker, but the last of its disks."""
        await self._stopping.wait()
        await self.stop()
        if self._failure:
            raise KafkaStorageError(self._failure)
        log.info("stopped")

    def _take_offline(self, manager: LogManager, path: str, partitions: list[TopicPartition]) -> None:
        if self._replicas is None:
            # The broker is still starting.
            return
        self._replicas.take_offline(path, partitions)
        if not manager.live_directories():
            # Whoever watches over the broker can start it anew, which is all that helps.
            causes = ", ".join(f"{each.path} ({each.failure})" for each in manager.directories)
            self._failure = f"all log directories have failed: {causes}"
            log.critical("the broker stops: %s", self._failure)
            self._stopping.set()

    async def stop(self) -> None:
        await self._open.aclose()

    def _log_config(self, cache: MetadataCache, settings: LiveSettings, topic: str) -> LogConfig:
        """Of a directory that is no topic's nothing is deleted."""
        if topic not in cache.image.topics:
            return replace(settings.current.log_defaults, barnabas_deletion_hold=True)
        return settings.current.topic_config(cache.image.topic_config(topic))

    async def _open_store(self, directories: list[str]) -> EmbeddedStore:
        store = await EmbeddedStore.open(
            directories, clock=self._clock, fs=self._fs, accepted_losses=self._accepted_losses
        )
        self._open.push_async_callback(store.close)
        return store

    async def _end_work(
        self, broker: Broker, connections: Connections, timer: LoopTimer, background: Background
    ) -> None:
        """Ends everything that writes, in the order in which one part gives work to the next.

        Logs and the store are closed after it: a write to a closed log would fail, and one between the last flush of
        a log and its end would be acknowledged without being on the disk.
        """
        connections.close()
        await broker.controller.close()
        await self._tasks.stop()
        broker.transactions.end()
        broker.groups.end()
        timer.close()
        await broker.replicas.opened(broker.image.topics)
        background.stop()

    async def _close_logs(self, manager: LogManager) -> None:
        await asyncio.get_running_loop().run_in_executor(None, manager.close)

    async def _bind_metrics(self) -> HttpEndpoint | None:
        port = self._config.barnabas_metrics_port
        if port < 0:
            return None
        host = self._config.endpoints[0].host
        endpoint = HttpEndpoint(
            {
                "/metrics": lambda: ("text/plain; version=0.0.4", self._metrics.lines()),
                "/health": lambda: ("text/plain", "ok\n"),
            }
        )
        try:
            await endpoint.bind(host, port)
        except OSError as error:
            raise cannot_listen(host, port, error, "barnabas.metrics.port") from error
        self._open.push_async_callback(endpoint.close)
        self.metrics_port = endpoint.port
        log.info("Metrics at http://%s:%d/metrics", host or "localhost", endpoint.port)
        return endpoint


def _failure_behind(error: BaseException | None) -> StorageFailure | None:
    """What a disk has refused, if that is why there is the error."""
    while error is not None and not isinstance(error, StorageFailure):
        error = error.__cause__
    return error


def _call(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(action)


def _open_log(
    manager: LogManager,
    partition: TopicPartition,
    topic_id: bytes,
    *,
    is_new: bool = False,
) -> PartitionLog:
    return manager.get_or_create(partition, topic_id, is_new=is_new)


def _check_security(config: BrokerConfig) -> None:
    for endpoint in config.endpoints:
        if endpoint.security_protocol is not SecurityProtocol.PLAINTEXT:
            raise InvalidConfig(
                f"listener {endpoint} asks for {endpoint.security_protocol}: only PLAINTEXT is there so far"
            )


def _limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=config.max_connections,
        max_connections_by_listener={
            each.listener_name: config.listener_integer(each.listener_name, "max.connections")
            for each in config.endpoints
        },
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_by_ip,
        connections_max_idle_ms=config.connections_max_idle_ms,
        socket_request_max_bytes=config.socket_request_max_bytes,
        socket_send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        socket_receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        queued_max_request_bytes=_queued_max_request_bytes(config),
    )


def _queued_max_request_bytes(config: BrokerConfig) -> int:
    """As it is set. Where it is not, there is room for the largest request."""
    if config.queued_max_request_bytes <= 0:
        return UNLIMITED
    return max(config.queued_max_request_bytes, config.socket_request_max_bytes)


def _buffer_bytes(config: BrokerConfig, name: str) -> int:
    """As it is set. Where it is not, the system has a buffer grow with what its connection moves."""
    if name not in config.static:
        return SYSTEM_DEFAULT
    value = config.values[name]
    assert isinstance(value, int)
    return value


def _manager_settings(config: BrokerConfig) -> ManagerSettings:
    return ManagerSettings(
        num_recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
        log_initial_task_delay_ms=config.log_initial_task_delay_ms,
        log_retention_check_interval_ms=config.log_retention_check_interval_ms,
        log_flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms,
        log_flush_offset_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_flush_start_offset_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        replica_high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        verifies_transactions=config.transaction_partition_verification_enable,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        file_delete_delay_ms=config.log_defaults.file_delete_delay_ms,
        log_cleaner_enable=config.log_cleaner_enable,
        log_cleaner_threads=config.log_cleaner_threads,
        log_cleaner_dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        log_cleaner_io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        log_cleaner_io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        log_cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        validate_fully=config.barnabas_record_validation == "full",
        accepted_losses=frozenset(map(os.path.abspath, config.barnabas_accept_loss)),
    )


def _advertised(config: BrokerConfig, ports: dict[str, int]) -> list[Endpoint]:
    """What clients are told: a port that the system chose, and a name for a listener on every address."""
    return [
        replace(each, host=advertised_host(each.host), port=each.port or ports[each.listener_name])
        for each in config.advertised_endpoints
    ]


async def _warn_if_unreachable(endpoint: Endpoint) -> None:
    reason = await why_unreachable(endpoint.host, endpoint.port)
    if reason is not None:
        log.warning(
            "clients are told to connect to %s, and from this machine that does not work: %s; set advertised.listeners",
            endpoint,
            reason,
        )


class RecoveryReport:
    """Tells how far recovery is: one line a second and directory, and one at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ns: dict[str, int] = {}

    def __call__(self, progress: LoadProgress) -> None:
        if progress.is_clean:
            return
        directory, now_ns = progress.directory, self._clock.monotonic_ns()
        is_done = progress.loaded_logs == progress.total_logs
        if is_done or now_ns >= self._next_ns.get(directory, 0):
            self._next_ns[directory] = now_ns + RECOVERY_REPORT_NS
            log.info("recovering %s: %d of %d logs", directory, progress.loaded_logs, progress.total_logs)


def _allow_many_files() -> None:
    """A broker needs a descriptor for each connection and each segment in use."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
