"""Reads settings, quotas and credentials from the store. Every broker does, when it starts and when topics appear."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence

from barnabas.coordination.metadata.image import MetadataImage, QuotaEntity
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.nodes import quota_entity, quota_limits
from barnabas.coordination.metadata.scram_credentials import ScramCredential, user_credentials
from barnabas.coordination.metadata.tree import (
    DEFAULT_ENTITY,
    DELETE_TOPICS,
    TOPICS,
    config_path,
    decode_config,
    desanitize,
)
from barnabas.coordination.store.contract import Store, children_of
from barnabas.value import replace

log = logging.getLogger(__name__)


async def with_settings(store: Store, image: MetadataImage, known_topics: Container[str]) -> MetadataImage:
    """The image with all settings that the store has. Raises MalformedNode.

    A topic that was deleted halfway may have left settings: only those of known topics count.
    """
    quotas, credentials = await _quotas_and_credentials(store)
    return replace(
        image,
        topic_configs={
            name: config
            for name, config in (await _configs(store, "topics")).items()
            if config and name in known_topics
        },
        broker_configs={
            "" if name == DEFAULT_ENTITY else name: config
            for name, config in (await _configs(store, "brokers")).items()
            if config
        },
        group_configs={
            desanitize(name): config for name, config in (await _configs(store, "groups")).items() if config
        },
        client_metrics={
            desanitize(name): config
            for name, config in (await _configs(store, "client-metrics")).items()
            if config
        },
        client_quotas=quotas,
        scram_credentials=credentials,
    )


def with_settings_read(
    image: MetadataImage, found: MetadataImage, known_topics: Container[str]
) -> MetadataImage:
    """The image with the settings that were found; topics that were not known then keep theirs."""
    since = {name: config for name, config in image.topic_configs.items() if name not in known_topics}
    return replace(
        image,
        topic_configs={**found.topic_configs, **since},
        broker_configs=found.broker_configs,
        group_configs=found.group_configs,
        client_metrics=found.client_metrics,
        client_quotas=found.client_quotas,
        scram_credentials=found.scram_credentials,
    )


def with_nodes(image: MetadataImage, nodes: Iterable[tuple[str, bytes]]) -> MetadataImage:
    """The image with the settings of some nodes; the same image if they are not new. Logs malformed nodes."""
    news = _News(image)
    for path, data in nodes:
        try:
            news.add(path, decode_config(path, data))
        except MalformedNode as error:
            log.error("Settings are not followed: %s", error)
    return news.image()


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
    return dict(zip(topics, await _read(store, paths), strict=True))


async def _configs(store: Store, config_type: str) -> dict[str, dict[str, str]]:
    names = await children_of(store, f"/config/{config_type}")
    paths = [config_path(config_type, name) for name in names]
    return dict(zip(names, await _read(store, paths), strict=True))


async def _read(store: Store, paths: Sequence[str]) -> list[dict[str, str]]:
    found = await store.get_all(paths)
    return [
        {} if each is None else decode_config(path, each[0]) for path, each in zip(paths, found, strict=True)
    ]


async def _quotas_and_credentials(
    store: Store,
) -> tuple[dict[QuotaEntity, dict[str, float]], dict[str, dict[str, ScramCredential]]]:
    """A user's quotas and credentials are settings of one node."""
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    all_credentials: dict[str, dict[str, ScramCredential]] = {}
    paths = await _quota_paths(store)
    for path, properties in zip(paths, await _read(store, paths), strict=True):
        user, client_id, _ = entity = quota_entity(path)
        limits = quota_limits(path, properties)
        if limits:
            quotas[entity] = limits
        if user is not None and client_id is None:
            credentials = _credentials(path, properties)
            if credentials:
                all_credentials[user] = credentials
    return quotas, all_credentials


async def _quota_paths(store: Store) -> list[str]:
    paths: list[str] = []
    for config_type in ("users", "clients", "ips"):
        paths += _below(f"/config/{config_type}", await children_of(store, f"/config/{config_type}"))
    for user in [path for path in paths if path.startswith("/config/users/")]:
        paths += _below(f"{user}/clients", await children_of(store, f"{user}/clients"))
    return paths


def _below(parent: str, names: Iterable[str]) -> list[str]:
    return [f"{parent}/{name}" for name in names]
