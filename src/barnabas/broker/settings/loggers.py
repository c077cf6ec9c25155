"""Levels of the broker's own loggers, with Kafka's names: a client may read and change them while the broker runs.

They are not stored. A logger without its own level has the level of its nearest parent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.errors import InvalidConfig, InvalidRequest

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """The effective level of each logger."""
    known = dict(logging.root.manager.loggerDict)
    loggers = [each for each in known.values() if isinstance(each, logging.Logger)]
    levels = {ROOT: _level_name(logging.root)}
    levels.update((each.name, _level_name(each)) for each in sorted(loggers, key=lambda each: each.name))
    return levels


def change_levels(levels: Mapping[str, str | None], *, validate_only: bool) -> None:
    """Sets levels by logger; None removes a logger's own level. An error changes nothing."""
    for name, level in levels.items():
        if name != ROOT and name not in logging.root.manager.loggerDict:
            raise InvalidConfig(f"Logger {name} does not exist!")
        if level is None:
            if name == ROOT:
                raise InvalidRequest(f"Removing the log level of the {ROOT} logger is not allowed")
        elif level not in LEVELS:
            raise InvalidConfig(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level."
                f" Valid log levels are {', '.join(sorted(LEVELS))}"
            )
    if not validate_only:
        for name, level in levels.items():
            logger = logging.root if name == ROOT else logging.getLogger(name)
            logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in reversed(LEVELS.items()) if number <= level), "TRACE")
