"""Errors as HTTP: a status, Kafka's name of the error, and a message that says what to do."""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.admin.errors import AdminErrors
from barnabas.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    KafkaError,
    NetworkException,
    OffsetOutOfRange,
    RequestTimedOut,
    ResourceNotFound,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)

MESSAGE_CHARACTERS_MAX: Final = 2_000


class NotLoggedIn(Exception):
    """The request needs a login; the message says how. `login` is `cluster` if the console itself asks for it."""

    def __init__(self, message: str, login: str = "cluster") -> None:
        super().__init__(message)
        self.login = login


_STATUS: Final[tuple[tuple[tuple[type[KafkaError], ...], int], ...]] = (
    (
        (
            UnknownTopicOrPartition,
            GroupIdNotFound,
            TransactionalIdNotFound,
            OffsetOutOfRange,
            ResourceNotFound,
        ),
        404,
    ),
    (
        (
            TopicAuthorizationFailed,
            GroupAuthorizationFailed,
            ClusterAuthorizationFailed,
            TransactionalIdAuthorizationFailed,
        ),
        403,
    ),
    ((ThrottlingQuotaExceeded,), 429),
    ((NetworkException, RequestTimedOut), 503),
)


def describe_error(error: BaseException) -> tuple[int, dict[str, Any]]:
    if isinstance(error, NotLoggedIn):
        return 401, {"error": "NOT_LOGGED_IN", "message": str(error), "login": error.login}
    if isinstance(error, AdminErrors) and error.errors:
        status, form = describe_error(next(iter(error.errors.values())))
        return status, {**form, "message": str(error)[:MESSAGE_CHARACTERS_MAX]}
    if isinstance(error, KafkaError):
        status = next((each for kinds, each in _STATUS if isinstance(error, kinds)), 400)
        return status, {"error": error.name, "message": str(error)[:MESSAGE_CHARACTERS_MAX] or error.name}
    if isinstance(error, TimeoutError):
        return 503, {"error": "TIMEOUT", "message": str(error) or "the cluster did not answer in time"}
    return 500, {"error": "BUG", "message": "an error in the console; its log has the details"}
