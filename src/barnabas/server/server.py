"""Builds a broker from its parts, starts it and stops it. This is the one place that states the order.

Start: addresses, log directories, store, identity and settings, logs, registration, election of the controller (which
gives partitions their roles), coordinators; then clients may connect. Nothing is written before the addresses are bound
and the directories are locked. After the end of its session with the store the broker repeats what needs one, in the
same order: settings, registration, election (`coordination/store/renewed.py`).

Stop: in the opposite order. First the broker leaves the cluster (`_leave_cluster`). Everything that writes to logs ends
before they are closed (`_end_work`), so everything that was acknowledged is on the disk, and the log directories are
marked as cleanly stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas import __version__
from barnabas.broker.broker import Broker
from barnabas.broker.metrics.broker_metrics import FlushTimes, register_metrics
from barnabas.broker.parts import AuthorizerParts, ClusterParts, ReplicaParts
from barnabas.broker.quotas.connections import ConnectionQuota
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.upkeep.automatic_topics import AutomaticTopics
from barnabas.broker.upkeep.maintenance import Compaction, start_maintenance
from barnabas.broker.waiting.background import Background
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.config.security_check import check_security
from barnabas.coordination.metadata.cache import Stage
from barnabas.coordination.store.contract import StoreError
from barnabas.coordination.store.renewed import RenewedStore
from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.directory_check import explained, find_directories
from barnabas.log.manager.manager import LogManager
from barnabas.metrics.registry import Registry
from barnabas.net.listener import Connections
from barnabas.server.cluster import Cluster, join_cluster, open_store, register
from barnabas.server.control import begin_control, build_control, feature_updates
from barnabas.server.coordinators import CoordinatorLinks, producer_id_blocks, start_coordinators
from barnabas.server.delegation_tokens import open_tokens
from barnabas.server.environment import Environment
from barnabas.server.listeners import Listeners, connection_limits
from barnabas.server.metrics import bind_metrics
from barnabas.server.peers import build_peers
from barnabas.server.replicas import build_replicas, follow_metadata, start_replication
from barnabas.server.requests import start_client_parts
from barnabas.server.storage import (
    DirectoryFailures,
    RecoveryReport,
    TopicSettings,
    claim_directories,
    lock_directories,
    manager_settings,
)

if TYPE_CHECKING:
    from barnabas.broker.upkeep.controlled_shutdown import ControlledShutdown
    from barnabas.security.authorizer import Authorizer
    from barnabas.security.new_users import NewUser

log = logging.getLogger("barnabas.server")

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server:
    """One broker. `start` returns when it answers, `stop` when everything is on the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment | None = None,
        new_users: Sequence[NewUser] = (),
    ) -> None:
        self._config = config
        self._new_users = new_users
        self._directories = [os.path.abspath(directory) for directory in config.log_dirs]
        self._environment = environment or Environment()
        self._metrics = Registry()
        # The opened parts, which are closed in the opposite order.
        self._open = contextlib.AsyncExitStack()
        self._stopping = asyncio.Event()
        # Why the broker cannot continue, if it cannot.
        self._failure = ""
        # Only in a cluster.
        self._controlled_shutdown: ControlledShutdown | None = None
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
                directory = os.path.dirname(failure.path)
                raise explained(self._environment.fs, directory, failure) from error
            raise KafkaStorageError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    def log_count(self) -> int:
        """How many partitions have an open log."""
        return self.broker.log_manager.log_count

    async def _start(self) -> None:
        check_security(self._config)
        authorizer = None
        if self._config.authorizer_class_name:
            from barnabas.server.authorization import new_authorizer

            authorizer = new_authorizer(self._config)
        scheduling = self._start_scheduling()
        connections = Connections(
            scheduling.loop,
            scheduling.background.executor,
            connection_limits(self._config),
            self._environment.transport,
        )
        self._open.callback(connections.close)
        listeners = Listeners(self._config, connections)
        metrics_endpoint = await bind_metrics(self._config, self._metrics)
        if metrics_endpoint is not None:
            self._open.push_async_callback(metrics_endpoint.close)
            self.metrics_port = metrics_endpoint.port

        cluster, storage = await self._open_storage(scheduling, listeners)
        authorization = await self._start_authorizer(authorizer, cluster)
        broker = await self._build_broker(scheduling, connections, listeners, cluster, storage, authorization)
        self.broker = broker
        self._open.push_async_callback(self._end_work, broker, connections, scheduling)
        self._start_maintenance(broker.log_manager, scheduling)
        register_metrics(broker, connections, scheduling.loop)
        if metrics_endpoint is not None:
            await metrics_endpoint.start_serving()
        log.info(
            "Barnabas %s, broker %d of cluster %s",
            *(__version__, broker.replicas.broker_id, broker.image.cluster_id),
        )
        log.info(
            "%d topics, %d partitions in %s",
            len(broker.image.topics),
            len(broker.replicas),
            ", ".join(self._directories),
        )
        if self._new_users:
            from barnabas.server.new_users import create_users

            await create_users(cluster.writer, self._new_users)
        self.ports = listeners.ports
        listeners.open(broker, scheduling.tasks, self._environment.transport)
        self._open.push_async_callback(self._leave_cluster, cluster)
        if self._config.barnabas_brokers > 1:
            from barnabas.server.joining import wait_for_metadata

            await wait_for_metadata(broker, cluster.known_topics)
        listeners.serve_clients()

    def _start_scheduling(self) -> Scheduling:
        executor = self._environment.new_executor(self._config.background_threads, "background")
        scheduling = Scheduling(asyncio.get_running_loop(), self._environment.clock, executor)
        self._open.callback(scheduling.background.stop)
        return scheduling

    async def _open_storage(
        self, scheduling: Scheduling, listeners: Listeners
    ) -> tuple[Cluster, ReplicaParts]:
        """Locks the log directories, opens the store, takes the broker's place in the cluster, opens the logs."""
        config, environment = self._config, self._environment
        found = find_directories(environment.fs, self._directories)
        settings = LiveSettings(config)
        topics = TopicSettings(settings)
        failures = DirectoryFailures(scheduling.loop, self._fail)
        manager = lock_directories(
            self._directories,
            found,
            config,
            environment,
            scheduling,
            FlushTimes(self._metrics),
            topics,
            failures,
        )
        self._open.callback(manager.release)
        store = await open_store(config, manager, environment)
        session = await RenewedStore.open(store, self._on_session_failure)
        self._open.push_async_callback(session.close)
        cluster = await join_cluster(session, settings, listeners.advertised, environment, found, self._fail)
        self._open.push_async_callback(cluster.follower.close)
        if cluster.features is not None:
            self._open.push_async_callback(cluster.features.close)
        self._open.push_async_callback(cluster.writer.close)
        topics.metadata, topics.updates = cluster.metadata, cluster.updates
        if store.may_have_lost:
            await cluster.writer.hold_deletion(cluster.known_topics)
        if config.values["password.encoder.secret"]:
            from barnabas.server.stored_passwords import encrypt_passwords

            await encrypt_passwords(cluster)
        manager.settings = manager_settings(settings.current)
        self._open.callback(scheduling.timer.close)
        storage = build_replicas(cluster.broker_id, settings, cluster.metadata, manager, scheduling)
        failures.begin(manager, storage.replicas)
        report = RecoveryReport(environment.clock)
        await self._in_thread(partial(manager.open, report))
        self._open.push_async_callback(self._close_logs, manager)
        claim_directories(manager, cluster.metadata.image.cluster_id, cluster.broker_id)
        session.on_renewed(storage.replicas.note_absence)
        await register(cluster)
        return cluster, storage

    async def _build_broker(
        self,
        scheduling: Scheduling,
        connections: Connections,
        listeners: Listeners,
        cluster: Cluster,
        storage: ReplicaParts,
        authorization: AuthorizerParts | None,
    ) -> Broker:
        def use(changed: BrokerConfig) -> None:
            connections.change_limits(connection_limits(changed))
            listeners.change(changed)
            storage.log_manager.settings = manager_settings(changed)

        settings = cluster.settings
        use(settings.current)
        environment, tasks, replicas = self._environment, scheduling.tasks, storage.replicas
        quotas = Quotas()
        connections.creation_quota = ConnectionQuota(quotas, environment.clock, lambda: settings.current)
        self._open.push_async_callback(tasks.stop)
        follow_metadata(cluster, storage, quotas, scheduling, use)
        peers = build_peers(cluster, environment, scheduling.loop)
        if peers is not None:
            self._open.push_async_callback(peers.close)
            replication = start_replication(
                storage,
                settings,
                scheduling,
                environment,
                peers.peers,
                peers.isr_changes,
                lambda: cluster.registration.epoch,
            )
            self._open.push_async_callback(replication.close)
            cluster.metadata.subscribe(Stage.REPLICAS, replicas.follow_brokers)
            replicas.on_offline = peers.offline_notices.note
            cluster.metadata.subscribe(Stage.REPLICAS, replicas.follow_topics)
            self._controlled_shutdown = peers.shutdown
        control = build_control(cluster, storage, environment, scheduling.background, peers, self._metrics)
        controller = control.controller
        self._open.push_async_callback(controller.close)
        adopted = await begin_control(controller, cluster, storage)
        links = None
        if peers is not None:
            ask_controller = peers.controller.ask if peers.has_producer_ids else None
            links = CoordinatorLinks(peers.peers, ask_controller)
        blocks = producer_id_blocks(cluster, links)
        self._open.push_async_callback(blocks.close)
        coordinators = start_coordinators(
            cluster, replicas, adopted, scheduling, environment.rng, blocks, links
        )
        tokens = await open_tokens(cluster, environment)
        if tokens is not None:
            self._open.push_async_callback(tokens.close)
        clients = start_client_parts(cluster, quotas, self._metrics, environment, scheduling)
        self._open.callback(clients.conversions.close)
        return Broker(
            scheduling=scheduling,
            metrics=self._metrics,
            cluster=ClusterParts(
                metadata=cluster.metadata,
                settings=settings,
                controller=controller,
                writer=cluster.writer,
                automatic_topics=AutomaticTopics(cluster.writer.create_topics, replicas, tasks),
                control=control.requests,
                features=feature_updates(cluster, controller, peers),
                delegation_tokens=tokens,
            ),
            replicas=storage,
            coordinators=coordinators,
            clients=clients,
            authorizer=authorization,
        )

    async def _start_authorizer(
        self, authorizer: Authorizer | None, cluster: Cluster
    ) -> AuthorizerParts | None:
        if authorizer is None:
            return None
        from barnabas.server.authorization import start_authorizer

        return await start_authorizer(
            authorizer, cluster, self._environment, self._metrics, self._open.push_async_callback
        )

    def _start_maintenance(self, manager: LogManager, scheduling: Scheduling) -> None:
        start_maintenance(manager, scheduling.background)
        if manager.settings.log_cleaner_enable:
            cleaning = Background(scheduling.loop, self._environment.new_executor(1, "cleaner"))
            compaction = Compaction(manager, scheduling.clock, cleaning)
            compaction.start()
            self._open.callback(compaction.stop)

    def watch_signals(self, numbers: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
        """Notes signals to stop from now on, also while the broker starts."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            log.info("Stopping")
            self._stopping.set()
            for number in numbers:
                # A second signal ends the process at once.
                loop.remove_signal_handler(number)

        # `nohup` has SIGHUP ignored.
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            numbers = [each for each in numbers if each != signal.SIGHUP]
        for number in numbers:
            loop.add_signal_handler(number, stop)

    async def run_until_signal(self) -> None:
        """Raises KafkaStorageError if the broker stopped because the last of its log directories failed."""
        await self._stopping.wait()
        await self.stop()
        if self._failure:
            raise KafkaStorageError(self._failure)
        log.info("Stopped")

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop_alone(self) -> None:
        """Stops the broker without its cluster: the supervisor and the other brokers end at the same time."""
        self._controlled_shutdown = None
        self._stopping.set()

    async def stop(self) -> None:
        await self._open.aclose()

    def _on_session_failure(self, error: Exception) -> None:
        self._fail(f"it cannot take its place in the cluster again: {error}")

    def _fail(self, reason: str) -> None:
        self._failure = reason
        log.critical("The broker stops: %s", reason)
        self._stopping.set()

    async def _leave_cluster(self, cluster: Cluster) -> None:
        """The first step of stopping: the broker still serves clients and the controller.

        A store that is out of reach must not hold up the end.
        """
        await cluster.session.stop_waiting()
        if self._controlled_shutdown is not None:
            await self._controlled_shutdown.run(self._config)

    async def _end_work(self, broker: Broker, connections: Connections, scheduling: Scheduling) -> None:
        """Ends everything that writes, in the order in which one part gives work to the next.

        Logs and the store are closed after it. A write to a closed log would fail, and a write between the last flush
        of a log and its end would be acknowledged without being on the disk.
        """
        connections.close()
        await broker.controller.close()
        await scheduling.tasks.stop()
        broker.transactions.end()
        broker.groups.end()
        scheduling.timer.close()
        await broker.replicas.opened(broker.image.topics)
        scheduling.background.stop()

    async def _close_logs(self, manager: LogManager) -> None:
        await self._in_thread(manager.close)

    async def _in_thread(self, action: Callable[[], None]) -> None:
        """For what takes long while the background threads have not started yet, or have stopped."""
        with self._environment.new_executor(1, "logs") as executor:
            await asyncio.get_running_loop().run_in_executor(executor, action)


def _failure_behind(error: BaseException | None) -> StorageFailure | None:
    """The refusal of a disk that caused the error, if there is one."""
    while error is not None and not isinstance(error, StorageFailure):
        error = error.__cause__
    return error


def _allow_many_files() -> None:
    """A broker needs a descriptor for each connection and each segment in use."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
