"""Errors of Spark as one line that a user can act on.

An error of Spark contains a plan, a Java stack trace, or the text of a Python traceback from a worker or a callback.
The last exception of the traceback, if there is one, names the cause; otherwise the message of the error class does:

    [PYTHON_DATA_SOURCE_ERROR] Failed when …: Traceback (most recent call last):
      File …
    barnabas.errors.UnknownTopicOrPartition: there is no topic oders     <- this
     SQLSTATE: 38000

    [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column … cannot be resolved. … SQLSTATE: 42703; line 1 pos 7;     <- this
    'Project ['nope]
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from typing import Any, Final

from barnabas import errors
from barnabas.errors import KafkaError, UnknownServerError

MESSAGE_LENGTH_MAX: Final = 2_000
CAUSES_MAX: Final = 10
# Spark's messages about a job whose workers or executors were lost; any other failure would only happen again.
LOST: Final = re.compile(
    r"exited unexpectedly|Python worker.{0,20}crashed|ExecutorLost|Lost executor|FetchFailed|Connection reset"
)
_SPARKS_PACKAGES: Final = ("pyspark", "py4j")
_ENDS: Final = (
    "\n=== Streaming Query ===",
    "\n\nJVM stacktrace:",
    "\n\tat ",
    "\nDriver stacktrace:",
    "\n== SQL",
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_NO_GATEWAY: Final = "[JAVA_GATEWAY_EXITED]"
_READING: Final = "[FAILED_READ_FILE"
_MALFORMED: Final = "[MALFORMED_RECORD"
_AWAITED: Final = "Exception thrown in awaitResult"
_NO_MODULE: Final = "ModuleNotFoundError: No module named 'barnabas'"
_STATE_WORKER: Final = "TransformWithStateInPySpark driver worker exited unexpectedly"
# The line behind the frames of a traceback: a dotted name that begins with no space, and what it says.
_RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
# Parts of a plan that failed at the same time, each with its exception. The first one says enough.
_SEVERAL: Final = re.compile(
    r"^.{0,200}?Multiple failures \(\d+\) in stage materialization:?\s+1\. \w+: (.*?)(?:\s+2\. \w+: .*)?$",
    re.DOTALL,
)
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_CONDITION: Final = re.compile(r"^\[([A-Z0-9_.]+)\]\s*")
_POSITION: Final = re.compile(r";? (line \d+ pos \d+);?\s*(\n.*)?$", re.DOTALL)
_JAVA: Final = re.compile(r"^(?:: )?(?:(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): )+")
# Sentences of Spark that are of no use to the author of a pipeline.
_NOISE: Final = (
    re.compile(r"Verify the spelling and correctness of the schema and catalog\.\s.*", re.DOTALL),
)


class SparkFailed(UnknownServerError):
    """Spark could not do what it was asked for, for a reason that is none of Kafka's."""


def told(error: BaseException) -> KafkaError:
    """The error to show for an error of Spark: the root cause if it is an error of Barnabas."""
    if isinstance(error, KafkaError):
        return error
    cause = error.__cause__ or error.__context__
    if isinstance(cause, KafkaError):
        return cause
    if not type(error).__module__.startswith(_SPARKS_PACKAGES):
        # Raised by a function of the pipeline's own, on the driver.
        return _ours(type(error).__name__, " ".join(str(error).split()))
    return failure_of(_text(error), type(error).__name__)


def failure_of(text: str, name: str = "") -> KafkaError:
    """The error that the text of a Spark error describes."""
    if _NO_GATEWAY in text:
        return SparkFailed("Java has ended before Spark was ready; --debug shows its output")
    if _STATE_WORKER in text and not has_protobuf():
        return SparkFailed("transformWithStateInPandas needs protobuf: pip install 'protobuf>=6.33.5'")
    if _NO_MODULE in text:
        return SparkFailed(
            "Spark's workers run a Python without barnabas: install barnabas[spark] there, or set PYSPARK_PYTHON to one"
            " that has it"
        )
    cut = _SEVERAL.sub(r"\1", _cut(text))
    if _TRACEBACK in cut:
        raised = _raised(cut.rpartition(_TRACEBACK)[2])
        if raised is not None and raised[0].startswith(_SPARKS_PACKAGES):
            return SparkFailed(_sentence(raised[1]) or raised[0])
        if raised is not None:
            return _ours(*raised)
    return SparkFailed(_sentence(cut) or name)


def has_protobuf() -> bool:
    """Whether there is the package that only transformWithStateInPandas needs of all that PySpark can do."""
    try:
        return importlib.util.find_spec("google.protobuf.descriptor") is not None
    except ImportError:
        return False


def _cut(text: str) -> str:
    for end in _ENDS:
        text = text.partition(end)[0]
    return text


def _text(error: BaseException) -> str:
    """The message of a Java error; Py4J's own text begins with the object that was called."""
    java: Any = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    if _AWAITED in text:
        # A part of the query that is computed in advance, such as a subquery, has failed.
        return next((cause for cause in _causes(error) if _AWAITED not in cause), text)
    if _READING in text:
        bad = next((_sentence(cause) for cause in _causes(error) if _MALFORMED in cause), "")
        return f"{_sentence(_cut(text))} {bad}"
    return text


def _causes(error: BaseException) -> Iterator[str]:
    """The messages of the causes of this exception: Java's own, or PySpark's copies of them."""
    below: Any = error
    java: Any = None
    for _ in range(CAUSES_MAX):
        if java is None:
            java = getattr(below, "java_exception", None) or getattr(below, "_origin", None)
        below = java.getCause() if java is not None else getattr(below, "_cause", None)
        if below is None:
            return
        if java is not None:
            java = below
        yield _cut(str(below.toString()) if java is not None else str(below))


def _raised(traceback: str) -> tuple[str, str] | None:
    """Name and message of the exception at the end of a traceback; a message may have several lines."""
    found: tuple[str, list[str]] | None = None
    for line in traceback.splitlines():
        match = _RAISED.match(line)
        if match is not None and found is None:
            found = match[1], [match[2] or ""]
        elif found is not None and line.strip():
            found[1].append(line.strip())
    if found is None:
        return None
    name, lines = found
    return name, _SQLSTATE.sub("", " ".join(lines)).strip()


def _ours(name: str, message: str) -> KafkaError:
    module_name, _, kind_name = name.rpartition(".")
    kind: type | None = getattr(errors, kind_name, None)
    if kind is None and module_name.startswith("barnabas."):
        # An exception of ours without a code of its own is shown as the one that it derives from.
        kind = getattr(importlib.import_module(module_name), kind_name, None)
    shown = message[:MESSAGE_LENGTH_MAX]
    if isinstance(kind, type) and issubclass(kind, KafkaError):
        made: KafkaError = next(each for each in kind.__mro__ if each.__module__ == errors.__name__)(shown)
        return made
    return SparkFailed(f"{kind_name}: {shown}" if shown else kind_name)


def _sentence(text: str) -> str:
    """The message of an error class, without its plan, its code and what it says for all of its kind."""
    text = _JAVA.sub("", text.strip())
    position = _POSITION.search(text)
    where = "" if position is None else f" ({position[1]})"
    text = text if position is None else text[: position.start()]
    for noise in (_SQLSTATE, _CONDITION, *_NOISE):
        text = noise.sub("", text)
    return " ".join(text.split())[:MESSAGE_LENGTH_MAX] + where
