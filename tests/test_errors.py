from __future__ import annotations

import pytest

from barnabas import errors


def test_codes_and_names_are_unique_and_known_both_ways() -> None:
    assert len({error.name for error in errors.ERRORS.values()}) == len(errors.ERRORS)
    for code, error in errors.ERRORS.items():
        assert errors.error_name(code) == error.name
        raised = errors.error_for_code(code, "why")
        assert type(raised) is error
        assert str(raised) == "why"


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [
        (errors.UnknownServerError, -1, False),
        (errors.OffsetOutOfRange, 1, False),
        (errors.CorruptMessage, 2, True),
        (errors.NotLeaderOrFollower, 6, True),
        (errors.KafkaStorageError, 56, True),
        (errors.ProducerFenced, 90, False),
    ],
)
def test_errors_are_as_kafka_has_them(error: type[errors.KafkaError], code: int, retriable: bool) -> None:
    assert (error.code, error.retriable) == (code, retriable)


def test_a_code_that_no_release_has_is_an_unknown_server_error() -> None:
    assert errors.error_name(0) == "NONE"
    assert errors.error_name(9999) == "ERROR_9999"
    assert isinstance(errors.error_for_code(9999), errors.UnknownServerError)
    assert str(errors.NotLeaderOrFollower()) == "NOT_LEADER_OR_FOLLOWER"
