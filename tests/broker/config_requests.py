"""Requests that see and change settings."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.messages.alter_configs_request import AlterableConfig as Setting
from barnabas.protocol.messages.alter_configs_request import AlterConfigsRequest
from barnabas.protocol.messages.alter_configs_request import AlterConfigsResource as Resource
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.raw_client import RawClient

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(
    client: RawClient, kind: int, name: str, *keys: str, version: int = 4, **options: bool
) -> dict[str, Any]:
    """Entries by name; fails if there is an error."""
    result = describe_result(client, kind, name, *keys, version=version, **options)
    assert result.error_code == 0, result
    return {entry.name: entry for entry in result.configs}


def describe_result(
    client: RawClient, kind: int, name: str, *keys: str, version: int = 4, **options: bool
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource])
    for option, value in options.items():
        setattr(request, option, value)
    [result] = client.ask("DescribeConfigs", version, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def incremental_resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def incremental(
    client: RawClient,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Error code and message."""
    request = IncrementalAlterConfigsRequest(
        resources=[incremental_resource(kind, name, *changes)], validate_only=validate_only
    )
    [answer] = client.ask("IncrementalAlterConfigs", version, request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message


def alter(
    client: RawClient,
    kind: int,
    name: str,
    settings: dict[str, str | None],
    *,
    version: int = 2,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    """Error code and message."""
    resource = Resource(
        resource_type=kind,
        resource_name=name,
        configs=[Setting(name=key, value=value) for key, value in settings.items()],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [answer] = client.ask("AlterConfigs", version, request).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer.error_code, answer.error_message
