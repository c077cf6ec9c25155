"""Changes of settings that clients ask for, by AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.results import code_of, message_of
from barnabas.broker.handlers.settings.config_access import authorize_configs
from barnabas.broker.handlers.settings.edits import Operation, ResourceChange, edit_of
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.broker.settings.loggers import change_levels
from barnabas.broker.settings.resources import ResourceType, check_broker_name
from barnabas.coordination.metadata.topic_names import check_topic_name
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import InvalidRequest, KafkaError
from barnabas.security.acls import ALTER_CONFIGS

ResultT_co = TypeVar("ResultT_co", covariant=True)
ResultT = TypeVar("ResultT")

_Results = dict[tuple[int, str], KafkaError | None]


class ResultClass(Protocol[ResultT_co]):
    """The two APIs have the same result, under two types."""

    def __call__(
        self, *, error_code: int, error_message: str | None, resource_type: int, resource_name: str
    ) -> ResultT_co: ...


async def alter_resources(
    broker: Broker,
    exchange: AnyExchange,
    resources: Sequence[ResourceChange],
    result_class: ResultClass[ResultT],
    *,
    validate_only: bool,
) -> list[ResultT]:
    """The results of all changes, in their order."""
    counts = Counter(each.key for each in resources)
    edits: dict[ResourceType, dict[str, Edit[str]]] = {}
    errors: _Results = {}
    end_ns = broker.turns.end_ns()
    for each in resources:
        if broker.turns.is_over(end_ns):
            await broker.turns.next()
            end_ns = broker.turns.end_ns()
        try:
            if counts[each.key] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            if ResourceType(each.resource_type) is not ResourceType.UNKNOWN:
                authorize_configs(broker, exchange, ALTER_CONFIGS, each.resource_type, each.name)
            _check_form(each)
            _check_name(broker, each)
            resource_type = ResourceType(each.resource_type)
            if resource_type is ResourceType.BROKER_LOGGER and not each.replaces:
                # Levels of loggers are not stored.
                change_levels(_levels(each), validate_only=validate_only)
            else:
                edits.setdefault(resource_type, {})[each.name] = edit_of(broker, each)
        except KafkaError as error:
            errors[each.key] = error
    errors.update(await _store(broker, edits, validate_only=validate_only))

    def result(change: ResourceChange) -> ResultT:
        return result_class(
            error_code=code_of(errors.get(change.key)),
            error_message=message_of(errors.get(change.key)),
            resource_type=change.resource_type,
            resource_name=change.name,
        )

    return await broker.turns.map(resources, result, list)


async def _store(
    broker: Broker, edits: dict[ResourceType, dict[str, Edit[str]]], *, validate_only: bool
) -> _Results:
    """Stores some resources at a time: each edit validates all settings of a resource, which takes long for many."""
    writer = broker.writer
    results: _Results = {}
    for resource_type, alter in (
        (ResourceType.TOPIC, writer.alter_topic_configs),
        (ResourceType.BROKER, writer.alter_broker_configs),
        (ResourceType.GROUP, writer.alter_group_configs),
        (ResourceType.CLIENT_METRICS, writer.alter_client_metrics),
    ):
        wanted = list(edits.get(resource_type, {}).items())
        async for part in broker.turns.parts(wanted):
            edited = dict(part)
            try:
                altered = await alter(edited, validate_only=validate_only)
            except KafkaError as error:
                altered = dict.fromkeys(edited, error)
            results.update(((resource_type, name), result) for name, result in altered.items())
    return results


def _check_form(resource: ResourceChange) -> None:
    names = [change.name for change in resource.changes]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    for change in resource.changes:
        if change.operation not in Operation._value2member_map_:
            raise InvalidRequest(f"Unknown operations type {change.operation}")
    nulls = [
        change.name
        for change in resource.changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def _check_name(broker: Broker, resource: ResourceChange) -> None:
    name = resource.name
    match ResourceType(resource.resource_type):
        case ResourceType.TOPIC:
            if not name:
                raise InvalidRequest("Default topic resources are not allowed.")
            check_topic_name(name)
        case ResourceType.BROKER if name:
            unexpected = "Unexpected broker id, expected {}, but received {}"
            check_broker_name(name, broker.replicas.broker_id, noun="Node", unexpected=unexpected)
        case ResourceType.BROKER_LOGGER if not resource.replaces:
            unexpected = "Unexpected node id. Expected {}, but received {}"
            check_broker_name(name, broker.replicas.broker_id, noun="Node", unexpected=unexpected)
        case ResourceType.GROUP if not name:
            raise InvalidRequest("Default group resources are not allowed.")
        case ResourceType.CLIENT_METRICS if not name:
            raise InvalidRequest("Subscription name can't be empty")


def _levels(resource: ResourceChange) -> dict[str, str | None]:
    levels: dict[str, str | None] = {}
    for name, operation, value in resource.changes:
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            raise InvalidRequest(
                f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
            )
        levels[name] = None if operation == Operation.DELETE else value
    return levels
