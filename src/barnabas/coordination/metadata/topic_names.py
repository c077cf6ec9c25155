"""Which names a topic may have."""

from __future__ import annotations

import re
from typing import Final

from barnabas.errors import InvalidTopicException

MAX_NAME_CHARACTERS: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicException with the fault, in Kafka's words. Names are file names too, hence the rules."""
    if not name:
        raise InvalidTopicException("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicException(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidTopicException(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length"
            f" {MAX_NAME_CHARACTERS}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicException(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_'"
            " and '-'"
        )


def is_legal_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicException:
        return False
    return True


def collision_key(name: str) -> str:
    """Names that differ only in '.' and '_' would have the same metrics: one of them has to do."""
    return name.replace(".", "_")
