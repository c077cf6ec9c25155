"""The kinds of entities with settings: their nodes in the store, and their part of a node.

Quotas and SCRAM credentials of a user are settings of one node, so a change of the ones keeps the others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.coordination.metadata.image import QuotaEntity
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.nodes import (
    QUOTA_KEYS,
    broker_config_path,
    client_metrics_path,
    group_config_path,
    quota_limits,
    quota_path,
    quota_texts,
    user_path,
)
from barnabas.coordination.metadata.scram_credentials import (
    MECHANISMS,
    ScramCredential,
    credential_texts,
    user_credentials,
)
from barnabas.coordination.metadata.tree import CONFIG_CHANGE_PREFIX, OWN_CONFIG_CHANGE_PREFIX, config_path

K = TypeVar("K")
V = TypeVar("V")


class EntityKind(NamedTuple, Generic[K, V]):
    path_of: Callable[[K], str]
    # The values of a node's texts, given its path; and the texts for values.
    read: Callable[[str, Mapping[str, str]], Mapping[str, V]]
    write: Callable[[Mapping[str, V]], Mapping[str, str]]
    # The settings of a node that are of this kind; None for all.
    owned: Container[str] | None = None
    # Where a change leaves its notice.
    notice_prefix: str = CONFIG_CHANGE_PREFIX

    def others(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The settings of a node that stay as they are."""
        owned = self.owned
        return {} if owned is None else {name: text for name, text in texts.items() if name not in owned}


def _texts(path: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    return texts


def _same(values: Mapping[str, str]) -> Mapping[str, str]:
    return values


def _credentials(path: str, texts: Mapping[str, str]) -> Mapping[str, ScramCredential]:
    try:
        return user_credentials(path, texts)
    except MalformedNode:
        # The broker does not use them either; new ones take their place.
        return {}


TOPICS: Final = EntityKind[str, str](partial(config_path, "topics"), _texts, _same)
BROKERS: Final = EntityKind[str, str](broker_config_path, _texts, _same)
GROUPS: Final = EntityKind[str, str](group_config_path, _texts, _same, notice_prefix=OWN_CONFIG_CHANGE_PREFIX)
CLIENT_METRICS: Final = EntityKind[str, str](
    client_metrics_path, _texts, _same, notice_prefix=OWN_CONFIG_CHANGE_PREFIX
)
QUOTAS: Final = EntityKind[QuotaEntity, float](quota_path, quota_limits, quota_texts, QUOTA_KEYS)
SCRAM_CREDENTIALS: Final = EntityKind[str, ScramCredential](
    user_path, _credentials, credential_texts, MECHANISMS
)
