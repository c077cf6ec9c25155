"""The table of routes: what serves them, and what the documentation says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.console.api import groups, messages, overview, pipelines, security, topics, transactions
from barnabas.console.api.call import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    description: str
    type: str = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler runs in a thread and returns JSON; others name a method of `Streams` or of `Access`."""

    method: str
    path: str
    summary: str
    handler: Handler | None = None
    stream: str = ""
    access: str = ""
    media_type: str = "application/json"
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, str] = field(default_factory=dict)


def _read(path: str, summary: str, handler: Handler, *parameters: Parameter) -> Route:
    return Route(method="GET", path=path, summary=summary, handler=handler, parameters=parameters)


def _change(method: str, path: str, summary: str, handler: Handler, body: Mapping[str, str]) -> Route:
    return Route(method=method, path=path, summary=summary, handler=handler, body=body)


def _stream(
    path: str, summary: str, stream: str, *parameters: Parameter, media_type: str = "text/event-stream"
) -> Route:
    return Route(
        method="GET", path=path, summary=summary, stream=stream, media_type=media_type, parameters=parameters
    )


def _text(name: str, description: str) -> Parameter:
    return Parameter(name=name, description=description)


def _number(name: str, description: str) -> Parameter:
    return Parameter(name=name, description=description, type="integer")


def _flag(name: str, description: str) -> Parameter:
    return Parameter(name=name, description=description, type="boolean")


RANGE: Final = (
    _text("partition", "Partitions, with commas between them; all if it is missing."),
    _number("start_offset", "The first offset."),
    _number("end_offset", "The offset after the last one."),
    _number("start_ms", "The first time, in ms since 1970."),
    _number("end_ms", "The time after the last one, in ms since 1970."),
    _flag("committed", "Only records of committed transactions (read_committed)."),
    _text("order", "newest (the default) or oldest first."),
    _number("limit", "The largest number of records."),
)
QUERY: Final = _text("q", "A search, in the language of the search box; see docs/CONSOLE.md.")
SEARCH: Final = _text("search", "A part of the name.")
CONFIRM: Final = {"confirm": "The name again, so that nothing is deleted by mistake."}
ACL: Final = {
    "principal": "Such as User:ann.",
    "operation": "Such as READ.",
    "resource_type": "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER.",
    "resource": "The name; * is all, and kafka-cluster is the cluster.",
    "pattern_type": "LITERAL (the default) or PREFIXED.",
    "host": "An address; * is all.",
    "permission": "ALLOW (the default) or DENY.",
}

ROUTES: Final = (
    Route(method="GET", path="/api/session", summary="The console itself, and its user.", access="session"),
    Route(
        method="POST",
        path="/api/login",
        summary="Logs in as a user of the cluster, if the console was started with --login cluster.",
        access="log_in",
        body={"user": "The name.", "password": "The password."},
    ),
    Route(method="POST", path="/api/logout", summary="Ends the session.", access="log_out"),
    _read("/api/overview", "The cluster: health, brokers, rates.", overview.overview),
    _read(
        "/api/history",
        "Measurements of the last hour.",
        overview.history,
        _text(
            "series",
            "Names, one a line: request_ms (of the console's own request for the health of the cluster), bytes,"
            " growth_per_second, records_per_second, lag, topic:NAME, group:NAME, lag:GROUP:TOPIC-PARTITION; with"
            " --metrics also bytes_in_per_second, bytes_out_per_second, requests_per_second, produce_p99_ms,"
            " fetch_p99_ms.",
        ),
    ),
    _read("/api/log-dirs", "Log directories and their sizes.", overview.log_dirs),
    _read("/api/reassignments", "Replicas that are moved now, with their progress.", overview.reassignments),
    _change(
        "POST",
        "/api/reassignments",
        "Moves the replicas of a partition.",
        overview.reassign,
        {
            "topic": "The topic.",
            "partition": "The partition.",
            "replicas": "The ids of the brokers, the preferred leader first; null cancels a move.",
        },
    ),
    _read("/api/quotas", "Quotas of users, clients and addresses.", security.list_quotas),
    _change(
        "PATCH",
        "/api/quotas",
        "Changes the quotas of an entity.",
        security.change_quotas,
        {
            "entity": "Names by type (user, client-id, ip); null is the default entity.",
            "values": "Numbers by name, such as producer_byte_rate; null removes a quota.",
        },
    ),
    _read("/api/users", "Users with a password (SCRAM).", security.list_users),
    _change(
        "POST",
        "/api/users",
        "Creates a user, or changes a password.",
        security.set_password,
        {
            "name": "The name.",
            "password": "The password. It does not leave the console; the broker gets a salted hash.",
            "mechanism": "SCRAM-SHA-512 (the default) or SCRAM-SHA-256.",
            "iterations": "8192 if it is missing.",
        },
    ),
    _change(
        "DELETE",
        "/api/users/{user:path}",
        "Deletes a password of a user.",
        security.delete_password,
        {**CONFIRM, "mechanism": "The mechanism of the password."},
    ),
    _read(
        "/api/acls", "ACLs.", security.list_acls, _text("search", "A part of the principal or the resource.")
    ),
    _change("POST", "/api/acls", "Creates an ACL.", security.create_acl, ACL),
    _change("DELETE", "/api/acls", "Deletes one ACL.", security.delete_acl, ACL),
    _read("/api/pipelines", "Pipelines and their state.", pipelines.list_pipelines),
    _read(
        "/api/pipelines/{name}",
        "A pipeline: its graph, batches, lag and last error.",
        pipelines.show_pipeline,
    ),
    _read(
        "/api/topics",
        "A page of the list of topics.",
        topics.list_topics,
        SEARCH,
        _flag("internal", "Also Kafka's internal topics."),
        _text("sort", "name, partitions, records, bytes, rate or lag."),
        _flag("descending", "The largest first."),
        _number("page", "The number of the page, from 0."),
        _number("size", "Rows per page, at most 200."),
    ),
    _change(
        "POST",
        "/api/topics",
        "Creates a topic.",
        topics.create_topic,
        {
            "name": "The name.",
            "partitions": "The number of partitions; the broker's default if it is missing.",
            "replication_factor": "The number of replicas; the broker's default if it is missing.",
            "configs": "Settings, an object of texts.",
        },
    ),
    _read("/api/topics/{topic}", "A topic and its partitions.", topics.show_topic),
    _change("DELETE", "/api/topics/{topic}", "Deletes a topic.", topics.delete_topic, CONFIRM),
    _change(
        "POST",
        "/api/topics/{topic}/partitions",
        "Adds partitions.",
        topics.add_partitions,
        {"count": "The new number of partitions."},
    ),
    _read(
        "/api/topics/{topic}/records",
        "A page of records, without a search.",
        messages.page,
        *RANGE,
        _text("cursor", "The cursor of the last page, to continue after it."),
    ),
    _change(
        "POST",
        "/api/topics/{topic}/records",
        "Sends a record.",
        messages.produce,
        {
            "key": 'null, {"text": …} or {"base64": …}.',
            "value": 'null, {"text": …} or {"base64": …}.',
            "headers": "A list of objects with name and value.",
            "partition": "A number; the key decides if it is missing.",
        },
    ),
    _read(
        "/api/topics/{topic}/records/{partition:int}/{offset:int}",
        "One record, with key and value up to 4 MiB.",
        messages.show_record,
    ),
    _change(
        "POST",
        "/api/topics/{topic}/records/{partition:int}/{offset:int}/resend",
        "Copies a record, unchanged, to a topic. A dead letter goes back to where it came from.",
        messages.resend,
        {"to": "The topic; for a dead letter its own if it is missing. Refused if the record is masked."},
    ),
    _stream(
        "/api/topics/{topic}/search",
        "Searches records: events plan, hit, progress, warning, end. Closing the stream stops the search. Hits that"
        " come early may be followed by newer (or older) ones: keep the first `limit` of them in the order.",
        "search",
        QUERY,
        *RANGE,
    ),
    _stream(
        "/api/topics/{topic}/tail",
        "New records as they arrive: events ready, records. Counts the records that it drops.",
        "tail",
        QUERY,
        *RANGE,
    ),
    _stream(
        "/api/topics/{topic}/download",
        "The records of a search as a file, in the order of partitions and offsets: all, up to 1,000,000, or the newest"
        " (or oldest) as many as `limit`. A file that is not complete says so in its last line.",
        "download",
        QUERY,
        *RANGE,
        _text("format", "jsonl (the default) or csv."),
        media_type="application/x-ndjson",
    ),
    _read(
        "/api/topics/{topic}/producers",
        "The producers that have written to a topic, and their open transactions.",
        transactions.list_producers,
    ),
    _change(
        "POST",
        "/api/topics/{topic}/abort-transaction",
        "Aborts a hanging transaction.",
        transactions.abort_hanging,
        {"partition": "The partition.", "start_offset": "The offset at which the transaction begins."},
    ),
    _read(
        "/api/configs/{kind}/{name:path}",
        "The settings of a topic, broker or group, with default, source and help.",
        topics.show_configs,
    ),
    _change(
        "PATCH",
        "/api/configs/{kind}/{name:path}",
        "Changes settings.",
        topics.change_configs,
        {"configs": "An object of names and values; null resets a setting."},
    ),
    _read("/api/groups", "Consumer groups and their lag.", groups.list_groups, SEARCH),
    _read("/api/groups/{group:path}", "A group: members and lag.", groups.show_group),
    _change("DELETE", "/api/groups/{group:path}", "Deletes a group.", groups.delete_group, CONFIRM),
    _change(
        "POST",
        "/api/groups/{group:path}/reset",
        "Computes new offsets, and sets them if execute is true.",
        groups.reset_offsets,
        {
            "to": "earliest, latest, offset, shift or time.",
            "value": "The offset, the number of records, or the time in ms.",
            "topic": "Only this topic.",
            "partitions": "Only these partitions of the topic.",
            "execute": "true to set the offsets.",
        },
    ),
    _read("/api/transactions", "Transactional ids and their transactions.", transactions.list_transactions),
    _change(
        "POST",
        "/api/transactions/{id:path}/fence",
        "Fences the producers of a transactional id, and aborts their transaction.",
        transactions.fence,
        CONFIRM,
    ),
)
