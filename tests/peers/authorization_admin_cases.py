"""Requests about settings and the cluster, with the ACLs that they need."""

from __future__ import annotations

from typing import Any, Final

from barnabas.security import acls
from barnabas.security.acls import ALTER, ALTER_CONFIGS, DESCRIBE, DESCRIBE_CONFIGS
from tests.peers.authorization_case import (
    ANY_ACL,
    BILLING,
    CLUSTER_DENIED,
    GROUP_DENIED,
    HIDDEN,
    ORDERS,
    OTHER_USER,
    TOKEN_DENIED,
    TOPIC_DENIED,
    Case,
    Needed,
    cluster,
    group,
    one,
    topic,
)


def configs(resource_type: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": resource_type, "resource_name": name, **fields}]}


TOPIC_CONFIGS, BROKER_CONFIGS, LOGGERS, CLIENT_METRICS, GROUP_CONFIGS = 2, 4, 8, 16, 32
RETENTION: Final = [{"name": "retention.ms", "config_operation": 0, "value": "100000"}]

SETTINGS_CASES: Final = [
    Case("DescribeConfigs", 4, configs(TOPIC_CONFIGS, ORDERS), one(topic(DESCRIBE_CONFIGS)), TOPIC_DENIED),
    Case("DescribeConfigs", 4, configs(BROKER_CONFIGS, "1"), one(cluster(DESCRIBE_CONFIGS)), CLUSTER_DENIED),
    Case(
        "DescribeConfigs",
        4,
        configs(LOGGERS, "1"),
        one(cluster(DESCRIBE_CONFIGS)),
        CLUSTER_DENIED,
        note="logger",
    ),
    Case(
        "DescribeConfigs",
        4,
        configs(CLIENT_METRICS, "metrics"),
        one(cluster(DESCRIBE_CONFIGS)),
        CLUSTER_DENIED,
        note="metrics",
    ),
    Case("DescribeConfigs", 4, configs(GROUP_CONFIGS, BILLING), one(group(DESCRIBE_CONFIGS)), GROUP_DENIED),
    Case(
        "AlterConfigs",
        2,
        {
            **configs(TOPIC_CONFIGS, ORDERS, configs=[{"name": "retention.ms", "value": "100000"}]),
            "validate_only": True,
        },
        one(topic(ALTER_CONFIGS)),
        TOPIC_DENIED,
    ),
    Case(
        "AlterConfigs",
        2,
        {**configs(BROKER_CONFIGS, "1", configs=[]), "validate_only": True},
        one(cluster(ALTER_CONFIGS)),
        CLUSTER_DENIED,
    ),
    Case(
        "AlterConfigs",
        2,
        {**configs(GROUP_CONFIGS, BILLING, configs=[]), "validate_only": True},
        one(group(ALTER_CONFIGS)),
        GROUP_DENIED,
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        {**configs(TOPIC_CONFIGS, ORDERS, configs=RETENTION), "validate_only": True},
        one(topic(ALTER_CONFIGS)),
        TOPIC_DENIED,
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        {**configs(BROKER_CONFIGS, "1", configs=[]), "validate_only": True},
        one(cluster(ALTER_CONFIGS)),
        CLUSTER_DENIED,
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        {**configs(GROUP_CONFIGS, BILLING, configs=[]), "validate_only": True},
        one(group(ALTER_CONFIGS)),
        GROUP_DENIED,
    ),
    Case("DescribeClientQuotas", 1, {"components": []}, one(cluster(DESCRIBE_CONFIGS)), CLUSTER_DENIED),
    Case(
        "AlterClientQuotas",
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "zoe"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0}],
                }
            ],
            "validate_only": True,
        },
        one(cluster(ALTER_CONFIGS)),
        CLUSTER_DENIED,
    ),
    Case("ListConfigResources", 1, {}, one(cluster(DESCRIBE_CONFIGS)), CLUSTER_DENIED),
]

CLUSTER_CASES: Final = [
    Case(
        "DescribeCluster", 1, {"include_cluster_authorized_operations": True}, one(cluster(DESCRIBE)), HIDDEN
    ),
    Case("DescribeLogDirs", 4, {"topics": []}, one(cluster(DESCRIBE)), CLUSTER_DENIED),
    Case(
        "AlterReplicaLogDirs",
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": ORDERS, "partitions": [0]}]}]},
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
    Case(
        "DescribeQuorum",
        2,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        one(cluster(DESCRIBE)),
        CLUSTER_DENIED,
    ),
    Case(
        "UpdateFeatures",
        1,
        {"timeout_ms": 9_000, "feature_updates": [], "validate_only": True},
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
    Case(
        "DescribeAcls",
        3,
        {"resource_type_filter": acls.USER, "pattern_type_filter": acls.ANY, **ANY_ACL},
        one(cluster(DESCRIBE)),
        CLUSTER_DENIED,
    ),
    Case(
        "CreateAcls",
        3,
        {
            "creations": [
                {
                    "resource_type": acls.TOPIC,
                    "resource_name": "",
                    "resource_pattern_type": acls.LITERAL,
                    "principal": "User:zoe",
                    "host": "*",
                    "operation": acls.READ,
                    "permission_type": acls.ALLOW,
                }
            ]
        },
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
    Case(
        "DeleteAcls",
        3,
        {
            "filters": [
                {
                    "resource_type_filter": acls.USER,
                    "pattern_type_filter": acls.LITERAL,
                    "principal_filter": "User:zoe",
                    **ANY_ACL,
                }
            ]
        },
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
    Case("DescribeUserScramCredentials", 0, {"users": []}, one(cluster(DESCRIBE)), CLUSTER_DENIED),
    Case(
        "AlterUserScramCredentials",
        0,
        {"deletions": [{"name": "zoe", "mechanism": 1}]},
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
]

_OWNERS: Final = {"owners": [{"principal_type": "User", "principal_name": OTHER_USER}]}
TOKEN_CASES: Final = [
    Case(
        "CreateDelegationToken",
        3,
        {
            "owner_principal_type": "User",
            "owner_principal_name": OTHER_USER,
            "renewers": [],
            "max_lifetime_ms": 600_000,
        },
        one(Needed(acls.CREATE_TOKENS, acls.USER, f"User:{OTHER_USER}")),
        TOKEN_DENIED,
    ),
    Case(
        "DescribeDelegationToken",
        3,
        _OWNERS,
        one(
            Needed(acls.DESCRIBE_TOKENS, acls.USER, f"User:{OTHER_USER}"),
            Needed(DESCRIBE, acls.DELEGATION_TOKEN, "*"),
        ),
        HIDDEN,
        alternatives=True,
    ),
    # Whose token it is decides, and no ACL.
    Case("RenewDelegationToken", 2, {"hmac": b"none", "renew_period_ms": 1}, (), HIDDEN),
    Case("ExpireDelegationToken", 2, {"hmac": b"none", "expiry_time_period_ms": 1}, (), HIDDEN),
]
