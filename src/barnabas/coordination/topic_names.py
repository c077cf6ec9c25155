"""Which names a topic may have."""

from __future__ import annotations

import re
from typing import Final

from barnabas.errors import InvalidTopicException

MAX_NAME_CHARACTERS: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicException with what is wrong. Names are file names too, hence the rules."""
    if not name:
        raise InvalidTopicException("a topic's name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopicException(f"a topic's name cannot be {name!r}")
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidTopicException(
            f"a topic's name has at most {MAX_NAME_CHARACTERS} characters, {name[:40]!r}... has {len(name)}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicException(
            f"{name!r} is no name for a topic: only ASCII letters and digits, '.', '_' and '-' are allowed"
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
