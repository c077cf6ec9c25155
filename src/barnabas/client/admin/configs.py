"""Settings of topics, brokers and groups, and client quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.client.admin.arguments import as_resource, as_resources
from barnabas.client.admin.core import AdminCore, config_text, no_such_broker, outcome_of, raise_for
from barnabas.client.admin.results import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    QuotaEntity,
    ResourceType,
)
from barnabas.client.arguments import as_enum, as_enums, as_mapped, as_mapping, as_text, as_texts, refuse
from barnabas.errors import KafkaError, NotController, ThrottlingQuotaExceeded
from barnabas.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    OpData,
)
from barnabas.protocol.messages.alter_client_quotas_request import EntityData as AlteredEntity
from barnabas.protocol.messages.alter_client_quotas_request import EntryData as AlteredEntry
from barnabas.protocol.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_config_resources_request import ListConfigResourcesRequest

# A quota's entity by its exact name, by having none, or by having any.
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
CHANGES: Final = "{ConfigResource(ResourceType.TOPIC, 'orders'): {'retention.ms': 1000}}"
QUOTAS: Final = "{(('user', 'ann'),): {'producer_byte_rate': 1000}}"
ANY_NAME: Final = "*"
"""In `describe_quotas`: entities of the type, whatever they are called."""

_BROKERS_OWN: Final = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


class ConfigsAdmin(AdminCore):
    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of each resource by name; those that are named, else all."""
        wanted_names = None if names is None else as_texts(names, "names", "['retention.ms']")

        async def ask(
            node: int | None, asked: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=int(each.type), resource_name=each.name, configuration_keys=wanted_names
                    )
                    for each in asked
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            answer = await self._request(node, request)
            return {_resource(each): _configs(each) for each in answer.results}

        return await self._each(
            "describing settings", as_resources(resources), self._at_resources, ask, timeout_ms
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, ConfigValue | ConfigChange | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Changes single settings and leaves the others: a text sets, None deletes, a ConfigChange says what else."""
        wanted = as_mapped(changes, "changes", CHANGES, as_resource, _alterables)

        async def ask(
            node: int | None, asked: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=int(each.type),
                        resource_name=each.name,
                        configs=wanted[each],
                    )
                    for each in asked
                ],
                validate_only=validate_only,
            )
            answer = await self._request(node, request)
            return {
                (
                    resource := ConfigResource(ResourceType(each.resource_type), each.resource_name)
                ): outcome_of(each.error_code, each.error_message, resource, None)
                for each in answer.responses
            }

        await self._each("changing settings", wanted, self._at_resources, ask, timeout_ms)

    async def list_config_resources(
        self, types: Iterable[ResourceType | str] = (), *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """The resources that have settings; a broker before 4.1 knows only client metrics."""

        wanted = as_enums(types, "types", ResourceType)

        async def ask() -> list[ConfigResource]:
            request = ListConfigResourcesRequest(resource_types=[int(each) for each in wanted])
            answer = await self._request(None, request)
            raise_for(answer.error_code, None, "settings")
            return [
                ConfigResource(ResourceType(each.resource_type), each.resource_name)
                for each in answer.config_resources
            ]

        return await self._once("listing what has settings", ask, timeout_ms)

    async def describe_quotas(
        self,
        entity: Mapping[str, str | None] | None = None,
        *,
        strict: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas of the entities that have these parts, all of them without; strict means no other parts.

        A part is named by its type (user, client-id, ip): a name, None for the default, ANY_NAME for all.
        """
        parts = as_mapped(entity or {}, "entity", "{'user': 'ann'}", as_text, _name)

        async def ask() -> dict[QuotaEntity, dict[str, float]]:
            request = DescribeClientQuotasRequest(
                components=[_component(kind, name) for kind, name in parts.items()], strict=strict
            )
            answer = await self._request(None, request)
            raise_for(answer.error_code, answer.error_message, "quotas")
            return {
                quota_entity({part.entity_type: part.entity_name for part in entry.entity}): {
                    value.key: value.value for value in entry.values
                }
                for entry in answer.entries or ()
            }

        return await self._once("describing quotas", ask, timeout_ms)

    async def alter_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Sets quotas of entities, such as (("user", "ann"),), or removes those that are None."""
        wanted = as_mapped(changes, "changes", QUOTAS, _entity, _quotas)

        async def ask(node: int | None, asked: list[QuotaEntity]) -> dict[QuotaEntity, KafkaError | None]:
            request = AlterClientQuotasRequest(
                entries=[
                    AlteredEntry(
                        entity=[AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity],
                        ops=[
                            OpData(key=key, value=value or 0.0, remove=value is None)
                            for key, value in wanted[entity].items()
                        ],
                    )
                    for entity in asked
                ],
                validate_only=validate_only,
            )
            answer = await self._request(node, request)
            return {
                (
                    entity := quota_entity({part.entity_type: part.entity_name for part in entry.entity})
                ): outcome_of(entry.error_code, entry.error_message, dict(entity), None)
                for entry in answer.entries
            }

        await self._each(
            "changing quotas",
            wanted,
            self._at_controller,
            ask,
            timeout_ms,
            retriable=(NotController, ThrottlingQuotaExceeded),
        )

    async def _at_resources(
        self, resources: list[ConfigResource]
    ) -> dict[ConfigResource, int | KafkaError | None]:
        """A broker's own settings are asked for at the broker, all others at any."""
        located: dict[ConfigResource, int | KafkaError | None] = {}
        known: set[int] | None = None
        for resource in resources:
            if resource.type not in _BROKERS_OWN or not resource.name:
                located[resource] = None
                continue
            if known is None:
                known = set(await self._all_brokers())
            broker_id = int(resource.name) if resource.name.isdecimal() else -1
            located[resource] = broker_id if broker_id in known else no_such_broker(resource.name)
        return located


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """An entity by its parts, such as {"user": "ann", "client-id": None}; a name of None is the default."""
    return tuple(sorted(parts.items()))


def _component(kind: str, name: str | None) -> ComponentData:
    if name is None:
        return ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
    if name == ANY_NAME:
        return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=name)


def _name(given: object, argument: str) -> str | None:
    return None if given is None else as_text(given, argument)


def _entity(given: object, argument: str) -> QuotaEntity:
    """Pairs of a type and a name; a single one may come without the others."""
    pairs = (given,) if isinstance(given, tuple) and given and isinstance(given[0], str) else given
    if not isinstance(pairs, tuple) or not all(isinstance(each, tuple) and len(each) == 2 for each in pairs):
        refuse(argument, f"entities as pairs of a type and a name, such as {QUOTAS}", given)
    return quota_entity({as_text(kind, argument): _name(name, argument) for kind, name in pairs})


def _quotas(given: object, argument: str) -> dict[str, float | None]:
    return as_mapped(given, argument, "{'producer_byte_rate': 1000}", as_text, _quota)


def _quota(given: object, argument: str) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float | None):
        refuse(argument, "a number, or None to remove the quota", given)
    return given


def _resource(result: DescribeConfigsResult) -> ConfigResource:
    return ConfigResource(ResourceType(result.resource_type), result.resource_name)


def _configs(result: DescribeConfigsResult) -> dict[str, ConfigEntry] | KafkaError:
    entries = {each.name: _entry(each) for each in sorted(result.configs, key=lambda one: one.name)}
    return outcome_of(result.error_code, result.error_message, _resource(result), entries)


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        type=ConfigType(config.config_type) if config.config_type in _TYPES else ConfigType.UNKNOWN,
        synonyms=tuple(
            ConfigSynonym(name=each.name, value=each.value, source=_source(each.source))
            for each in config.synonyms
        ),
        documentation=config.documentation or None,
    )


_TYPES: Final = frozenset(ConfigType)
_SOURCES: Final = frozenset(ConfigSource)


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in _SOURCES else ConfigSource.UNKNOWN


def _alterables(given: object, argument: str) -> list[AlterableConfig]:
    changes = as_mapping(given, argument, "{'retention.ms': 1000}")
    return [_alterable(as_text(name, argument), change) for name, change in changes.items()]


def _alterable(name: str, change: ConfigValue | ConfigChange | None) -> AlterableConfig:
    if not isinstance(change, ConfigChange):
        operation = ConfigOperation.DELETE if change is None else ConfigOperation.SET
        change = ConfigChange(operation=operation, value=config_text(name, change))
    operation = as_enum(change.operation, f"the operation on {name}", ConfigOperation)
    return AlterableConfig(name=name, config_operation=int(operation), value=config_text(name, change.value))
