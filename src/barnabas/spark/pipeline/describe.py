"""Sources, steps and sinks in a few words, and how rows go from one to the other. Nothing here needs Spark."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, Final

from barnabas.spark.pipeline.flows import outputs_of
from barnabas.spark.pipeline.model import (
    DatabaseSink,
    DatabaseSource,
    LogSource,
    Pipeline,
    Sink,
    Source,
    TopicSource,
    Transform,
)

_PASSWORD: Final = re.compile(r"://([^:/@]*):[^@/]*@")
_WORD: Final = re.compile(r"[A-Za-z0-9_]+")
LETTERS_NODE: Final = "dead letters"


def describe_source(source: Source) -> str:
    if isinstance(source, TopicSource):
        what = ",".join(source.topics) if source.pattern is None else f"topics like {source.pattern}"
        decoded = f" as {source.format.kind}" if source.format else ""
        return f"topic {what}{decoded} at {source.kafka['bootstrap.servers']} from {source.starting}"
    if isinstance(source, DatabaseSource):
        return f"{source.table or source.query} of {without_password(source.url)}"
    if isinstance(source, LogSource):
        return f"log directories {', '.join(source.paths)}"
    return f"{source.file_format} in {source.path}"


def describe_sink(sink: Sink) -> str:
    if isinstance(sink, DatabaseSink):
        return f"{sink.mode} to {sink.table} of {without_password(sink.url)}"
    settings = asdict(sink)
    where = (
        settings.get("topic") or settings.get("path") or settings.get("kafka", {}).get("bootstrap.servers")
    )
    how = (
        settings.get("file_format")
        or settings.get("mode")
        or (settings.get("format") or {}).get("kind")
        or ""
    )
    return " ".join(
        part for part in (sink.TYPE, str(where or "by column topic"), f"({how})" if how else "") if part
    )


def without_password(url: str) -> str:
    return _PASSWORD.sub(r"://\1:…@", url)


def graph_of(pipeline: Pipeline) -> dict[str, Any]:
    """Nodes (sources, steps, sinks, dead letters) and edges between their names, in the order of the file."""
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []
    for name, source in pipeline.sources.items():
        topics = list(source.topics) if isinstance(source, TopicSource) and source.pattern is None else []
        nodes.append({"name": name, "kind": "source", "text": describe_source(source), "topics": topics})
    known = list(pipeline.sources)
    for step in pipeline.transforms:
        text = step.function or " ".join((step.sql or "").split())
        nodes.append({"name": step.name, "kind": "step", "text": text, "topics": []})
        edges += [{"from": each, "to": step.name} for each in _inputs(step, known)]
        known.append(step.name)
    for output in outputs_of(pipeline):
        topic = getattr(output.sink, "topic", None)
        # "sink", or "sink NAME": a step may have the same name as a sink.
        name = output.key.replace("sinks.", "sink ")
        text = describe_sink(output.sink)
        nodes.append({"name": name, "kind": "sink", "text": text, "topics": [topic] if topic else []})
        edges.append({"from": output.rows, "to": name})
    letters = pipeline.dead_letters
    if letters is not None:
        nodes.append(
            {
                "name": LETTERS_NODE,
                "kind": "letters",
                "text": f"topic {letters.topic}" if letters.topic else "dropped",
                "topics": [letters.topic] if letters.topic else [],
            }
        )
        decoding = [name for name, source in pipeline.sources.items() if getattr(source, "format", None)]
        edges += [{"from": each, "to": LETTERS_NODE} for each in decoding]
    return {"nodes": nodes, "edges": edges}


def _inputs(step: Transform, known: list[str]) -> list[str]:
    """Names that the SQL of a step mentions, or the arguments of its function."""
    if step.function is not None:
        return list(step.inputs) or known[-1:]
    words = {each.lower() for each in _WORD.findall(step.sql or "")}
    return [name for name in known if name.lower() in words]
