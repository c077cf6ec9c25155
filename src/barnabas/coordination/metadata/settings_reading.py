"""Reads settings, quotas and credentials from the store. Every broker does, when it starts and when topics appear."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.metadata.image import MetadataImage, QuotaEntity
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.nodes import (
    broker_config_path,
    client_metrics_path,
    group_config_path,
    quota_entity,
    quota_limits,
    quota_path,
    user_path,
)
from barnabas.coordination.metadata.scram_credentials import ScramCredential, user_credentials
from barnabas.coordination.metadata.tree import (
    CONFIG_TYPES,
    DEFAULT_ENTITY,
    DELETE_TOPICS,
    TOPICS,
    config_path,
    decode_config,
    desanitize,
)
from barnabas.coordination.store.contract import Store, children_of

log = logging.getLogger(__name__)

# A path and its data, which are empty where there is no node.
Node: TypeAlias = tuple[str, bytes]

_TOPIC_CONFIGS: Final = "/config/topics/"
# Its retention is not known: the default one could delete records that are to be kept.
UNREADABLE_TOPIC: Final = MappingProxyType({DELETION_HOLD: "true"})


async def with_settings(
    store: Store, image: MetadataImage, known_topics: Container[str], *, skips_malformed: bool
) -> MetadataImage:
    """The image with all settings that the store has.

    `skips_malformed` says whether others than brokers may write them. If not, a node that cannot be read is damaged,
    and raises MalformedNode.
    """
    nodes = await read_settings(store, known_topics)
    return with_all_nodes(image, nodes, known_topics, skips_malformed=skips_malformed)


async def read_settings(store: Store, known_topics: Container[str]) -> list[Node]:
    """The nodes of all settings.

    A topic that was deleted halfway may have left settings: only those of known topics count.
    """
    paths: list[str] = []
    for config_type in CONFIG_TYPES:
        names = await children_of(store, f"/config/{config_type}")
        if config_type == "topics":
            names = [name for name in names if name in known_topics]
        paths += _below(f"/config/{config_type}", names)
    for user in [path for path in paths if path.startswith("/config/users/")]:
        paths += _below(f"{user}/clients", await children_of(store, f"{user}/clients"))
    found = await store.get_all(paths)
    return [(path, b"" if each is None else each[0]) for path, each in zip(paths, found, strict=True)]


def with_all_nodes(
    image: MetadataImage,
    nodes: Collection[Node],
    known_topics: Container[str],
    *,
    skips_malformed: bool = True,
) -> MetadataImage:
    """The image with the settings of these nodes and no others; topics that were not known then keep theirs."""
    present = {path for path, _ in nodes}
    gone = [(path, b"") for path in _paths_of_settings(image, known_topics) if path not in present]
    return with_nodes(with_nodes(image, gone), nodes, skips_malformed=skips_malformed)


def _paths_of_settings(image: MetadataImage, known_topics: Container[str]) -> Iterator[str]:
    yield from (config_path("topics", name) for name in image.topic_configs if name in known_topics)
    yield from map(broker_config_path, image.broker_configs)
    yield from map(group_config_path, image.group_configs)
    yield from map(client_metrics_path, image.client_metrics)
    yield from map(quota_path, image.client_quotas)
    yield from map(user_path, image.scram_credentials)


def with_nodes(image: MetadataImage, nodes: Iterable[Node], *, skips_malformed: bool = True) -> MetadataImage:
    """The image with the settings of some nodes; the same image if they are not new.

    Entities whose nodes cannot be read keep the settings that the image has.
    """
    news = _News(image)
    for path, data in nodes:
        try:
            news.add(path, decode_config(path, data))
        except MalformedNode as error:
            if not skips_malformed:
                raise
            _log_malformed(error)
            topic = path.removeprefix(_TOPIC_CONFIGS)
            if topic != path and topic not in image.topic_configs:
                news.add(path, dict(UNREADABLE_TOPIC))
    return news.image()


def _log_malformed(error: MalformedNode) -> None:
    log.error("Settings are not followed: %s. Mend the node: brokers read it when they start", error)


class _News:
    """Settings that an image does not have yet: an image has thousands of entities, and is copied once for all news."""

    def __init__(self, before: MetadataImage) -> None:
        self._before = before
        self._topics: dict[str, dict[str, str]] = {}
        self._brokers: dict[str, dict[str, str]] = {}
        self._groups: dict[str, dict[str, str]] = {}
        self._client_metrics: dict[str, dict[str, str]] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._credentials: dict[str, dict[str, ScramCredential]] = {}

    def add(self, path: str, texts: dict[str, str]) -> None:
        before = self._before
        config_type, entity = path.removeprefix("/config/").split("/", 1)
        match config_type:
            case "topics":
                if before.topic_config(entity) != texts:
                    self._topics[entity] = texts
            case "brokers":
                broker = "" if entity == DEFAULT_ENTITY else entity
                if before.broker_config(broker) != texts:
                    self._brokers[broker] = texts
            case "groups":
                group_id = desanitize(entity)
                if before.group_configs.get(group_id, {}) != texts:
                    self._groups[group_id] = texts
            case "client-metrics":
                name = desanitize(entity)
                if before.client_metrics.get(name, {}) != texts:
                    self._client_metrics[name] = texts
            case _:
                self._add_user(path, texts)

    def _add_user(self, path: str, texts: Mapping[str, str]) -> None:
        """Quotas of users, clients and addresses; credentials of users."""
        user, client_id, _ = entity = quota_entity(path)
        limits = quota_limits(path, texts)
        if limits != self._before.client_quotas.get(entity, {}):
            self._quotas[entity] = limits
        if user is None or client_id is not None:
            return
        credentials = _credentials(path, texts)
        if credentials != self._before.scram_credentials.get(user, {}):
            self._credentials[user] = credentials

    def image(self) -> MetadataImage:
        image = self._before
        if self._topics:
            image = image.with_topic_configs(self._topics)
        if self._brokers:
            image = image.with_broker_configs(self._brokers)
        if self._groups:
            image = image.with_group_configs(self._groups)
        if self._client_metrics:
            image = image.with_client_metrics(self._client_metrics)
        if self._quotas:
            image = image.with_client_quotas(self._quotas)
        if self._credentials:
            image = image.with_scram_credentials(self._credentials)
        return image


def _credentials(path: str, texts: Mapping[str, str]) -> dict[str, ScramCredential]:
    try:
        return user_credentials(path, texts)
    except MalformedNode as error:
        log.warning("SCRAM credentials are not used: %s", error)
        return {}


async def stored_topics(store: Store) -> set[str]:
    """The topics of the cluster, without those that are being deleted."""
    names = await children_of(store, TOPICS)
    return set(names).difference(await children_of(store, DELETE_TOPICS))


async def topic_configs(store: Store, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of these topics, empty where there are none."""
    paths = [config_path("topics", name) for name in topics]
    configs = {}
    for name, path, found in zip(topics, paths, await store.get_all(paths), strict=True):
        try:
            configs[name] = {} if found is None else decode_config(path, found[0])
        except MalformedNode as error:
            _log_malformed(error)
            configs[name] = dict(UNREADABLE_TOPIC)
    return configs


def _below(parent: str, names: Iterable[str]) -> list[str]:
    return [f"{parent}/{name}" for name in names]
