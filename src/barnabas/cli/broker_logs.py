"""The format of a broker's log lines, for people and for programs. They go to standard error.

For people, the layout is that of Apache Kafka, so that tools for its logs can read ours:

    [2026-11-16 10:52:37,100] INFO Created topic orders with 3 partitions (barnabas.coordination.controller.creation)

If several brokers run on the host, a line also names its process:

    [2026-11-16 10:52:37,100] INFO [broker 1] Listening on PLAINTEXT://localhost:9093 (barnabas.server)

For programs (`--log-format json`), each line is an object: `ts`, `level`, `logger`, `message`, `exception` if there is
one, and other fields of the event, such as `topic`; with several brokers also `process`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Final

from barnabas.broker.settings.loggers import LEVELS

# Lines about every segment that is rolled or deleted appear only on request.
QUIET: Final = "barnabas.log"
LEVEL_NAMES: Final = tuple(LEVELS)
_NAMES: Final = {number: name for name, number in LEVELS.items()}
# The standard fields of a logging record; all others are fields of the event.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Messages may quote what a client has sent; they must stay on one line.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def level_name(number: int) -> str:
    return _NAMES.get(number) or logging.getLevelName(number)


class BrokerFormatter(logging.Formatter):
    # The process among several of this host, such as "broker 1".
    process = ""


class LineFormatter(BrokerFormatter):
    """Date and time, level, message, and logger: one line per event, and the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        message = _CONTROL.sub(_escaped, record.getMessage())
        process = f"[{self.process}] " if self.process else ""
        text = f"[{clock},{int(record.msecs):03d}] {level_name(record.levelno)} {process}{message} ({record.name})"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class JsonFormatter(BrokerFormatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": level_name(record.levelno),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.process:
            fields["process"] = self.process
        fields.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


FORMATTERS: Final[dict[str, type[BrokerFormatter]]] = {"text": LineFormatter, "json": JsonFormatter}


def log_to_stderr(*, form: str, level: str, verbose: int) -> None:
    """Makes all loggers of the process write to standard error. Clients may change their levels later."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[form]())
    number = min(LEVELS[level], logging.DEBUG) if verbose > 1 else LEVELS[level]
    logging.root.addHandler(handler)
    logging.root.setLevel(number)
    if not verbose and number > logging.DEBUG:
        logging.getLogger(QUIET).setLevel(max(number, logging.WARNING))
    # At the debug level it logs which selector it uses, which is of no interest.
    logging.getLogger("asyncio").setLevel(max(number, logging.INFO))


def name_process(name: str) -> None:
    """From now on each line of this process has its name."""
    for handler in logging.root.handlers:
        if isinstance(handler.formatter, BrokerFormatter):
            handler.formatter.process = name


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
