"""Metrics of the controller, and of the session with ZooKeeper. A broker that is not the controller counts nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.controller.work import Activity, Timed
from barnabas.coordination.store.contract import SessionState
from barnabas.coordination.store.renewed import RenewedStore
from barnabas.metrics.instruments import Histogram
from barnabas.metrics.registry import Registry

_KAFKA_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_STATS: Final = "kafka_controller_controllerstats_"
_EVENTS: Final = "kafka_controller_controllereventmanager_"
_SESSION: Final = "kafka_server_sessionexpirelistener_"

# The field of what the controller counts, and its text.
_COUNTS: Final = {
    "activebrokercount": ("active_brokers", "Brokers that are alive."),
    "globaltopiccount": ("topics", "Topics of the cluster."),
    "globalpartitioncount": ("partitions", "Partitions of the cluster."),
    "offlinepartitionscount": ("offline_partitions", "Partitions without a leader."),
    "preferredreplicaimbalancecount": (
        "preferred_replica_imbalance",
        "Partitions that another replica leads than the preferred one.",
    ),
    "topicstodeletecount": ("topics_to_delete", "Topics that are being deleted."),
    "replicastodeletecount": ("replicas_to_delete", "Replicas that are being deleted."),
    "topicsineligibletodeletecount": (
        "topics_ineligible_to_delete",
        "Topics whose deletion has to wait for a broker or a reassignment.",
    ),
    "replicasineligibletodeletecount": (
        "replicas_ineligible_to_delete",
        "Replicas whose deletion has to wait for their broker.",
    ),
}

# Those of which Kafka has a rate and a time. The time of changes of brokers has the name of the elections that follow.
_TIMES: Final = {
    Activity.CONTROLLER_CHANGE: "controllerchange",
    Activity.BROKER_CHANGE: "leaderelection",
    Activity.TOPIC_CHANGE: "topicchange",
    Activity.TOPIC_DELETION: "topicdeletion",
    Activity.ALTER_PARTITION_REASSIGNMENT: "partitionreassignment",
    Activity.AUTO_LEADER_BALANCE: "autoleaderbalance",
    Activity.MANUAL_LEADER_BALANCE: "manualleaderbalance",
    Activity.CONTROLLED_SHUTDOWN: "controlledshutdown",
    Activity.ISR_CHANGE: "isrchange",
    Activity.LEADER_AND_ISR_RESPONSE_RECEIVED: "leaderandisrresponsereceived",
    Activity.LOG_DIR_CHANGE: "logdirchange",
    Activity.CONTROLLER_SHUTDOWN: "controllershutdown",
    Activity.UNCLEAN_LEADER_ELECTION_ENABLE: "uncleanleaderelectionenable",
    Activity.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: "topicuncleanleaderelectionenable",
    Activity.LIST_PARTITION_REASSIGNMENT: "listpartitionreassignment",
    Activity.UPDATE_METADATA_RESPONSE_RECEIVED: "updatemetadataresponsereceived",
    Activity.UPDATE_FEATURES: "updatefeatures",
}

# Kafka's words for the states of a session.
_STATES: Final = {
    SessionState.CONNECTED: "CONNECTED",
    SessionState.SUSPENDED: "CONNECTING",
    SessionState.EXPIRED: "CONNECTING",
    SessionState.CLOSED: "CLOSED",
}


class _Counting:
    """Counts once for all metrics of a scrape: they are read in the order in which they were registered."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._counts = controller.counts()

    def active(self) -> int:
        self._counts = self._controller.counts()
        return int(self._controller.is_active)

    def count(self, field: str) -> int:
        found: int = getattr(self._counts, field)
        return found


def register_controller(metrics: Registry, controller: Controller) -> None:
    counting = _Counting(controller)
    name = _KAFKA_CONTROLLER
    metrics.gauge(name + "activecontrollercount", "1 if this broker is the controller.", counting.active)
    for metric, (field, help_text) in _COUNTS.items():
        metrics.gauge(name + metric, help_text, partial(counting.count, field))
    metrics.gauge(name + "fencedbrokercount", "Always 0: with ZooKeeper, brokers are not fenced.", lambda: 0)
    work = controller.work
    metrics.gauge(
        name + "controllerstate", "What the controller is doing, as a number.", lambda: int(work.activity)
    )
    metrics.gauge(_EVENTS + "eventqueuesize", "Events that wait for the controller.", lambda: len(work))
    metrics.total(
        _STATS + "uncleanleaderelections_total",
        "Leaders that were elected without being in sync.",
        lambda: controller.stats.unclean_elections,
    )
    waited = metrics.histogram(
        _EVENTS + "eventqueuetime_seconds", "Time that events wait for the controller."
    )
    times: dict[Activity, Histogram] = {
        activity: metrics.histogram(
            f"{_STATS}{each}time_seconds", f"Time that the controller takes for {activity.name.lower()}."
        ).labels()
        for activity, each in _TIMES.items()
    }

    def took(activity: Activity, took_s: float) -> None:
        time = times.get(activity)
        if time is not None:
            time.observe(took_s)

    work.timed = Timed(waited.labels().observe, took)


def register_session(metrics: Registry, session: RenewedStore) -> None:
    metrics.gauge(
        _SESSION + "sessionstate",
        "The state of the session with ZooKeeper.",
        lambda: [({"state": _STATES[session.state]}, 1)],
    )
    totals: tuple[tuple[str, str, Callable[[], int]], ...] = (
        ("zookeepersyncconnects", "Connections to ZooKeeper.", lambda: session.connects),
        ("zookeeperdisconnects", "Connections to ZooKeeper that were lost.", lambda: session.disconnects),
        ("zookeeperexpires", "Sessions with ZooKeeper that have expired.", lambda: session.expires),
    )
    for each, help_text, reading in totals:
        metrics.total(f"{_SESSION}{each}_total", help_text, reading)
