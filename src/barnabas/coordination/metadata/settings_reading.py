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


def with_node(image: MetadataImage, path: str, data: bytes) -> MetadataImage:
    """The image with the settings of one node; the same image if they are not new. Raises MalformedNode."""
    texts = decode_config(path, data)
    config_type, entity = path.removeprefix("/config/").split("/", 1)
    match config_type:
        case "topics":
            return image if image.topic_config(entity) == texts else image.with_topic_configs({entity: texts})
        case "brokers":
            broker = "" if entity == DEFAULT_ENTITY else entity
            return (
                image if image.broker_config(broker) == texts else image.with_broker_configs({broker: texts})
            )
        case "groups":
            group_id = desanitize(entity)
            before = image.group_configs.get(group_id, {})
            return image if before == texts else image.with_group_configs({group_id: texts})
        case "client-metrics":
            name = desanitize(entity)
            before = image.client_metrics.get(name, {})
            return image if before == texts else image.with_client_metrics({name: texts})
    return _with_user(image, path, texts)


def _with_user(image: MetadataImage, path: str, texts: Mapping[str, str]) -> MetadataImage:
    """Quotas of users, clients and addresses; credentials of users."""
    user, client_id, _ = entity = quota_entity(path)
    limits = quota_limits(path, texts)
    if limits != image.client_quotas.get(entity, {}):
        image = image.with_client_quotas({entity: limits})
    if user is None or client_id is not None:
        return image
    credentials = _credentials(path, texts)
    if credentials != image.scram_credentials.get(user, {}):
        image = image.with_scram_credentials({user: credentials})
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
