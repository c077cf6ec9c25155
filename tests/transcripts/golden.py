"""The golden transcripts: for each level of the protocol one file, a line a step."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

LEVELS: Final = ("3.9", "3.4", "2.8")
FOLDER: Final = Path(__file__).parents[1] / "data" / "transcripts"

Transcript = Sequence[Mapping[str, Any]]


def write_golden(level: str, transcripts: Mapping[str, Transcript]) -> None:
    lines = [
        json.dumps({"scenario": name, **step}, separators=(",", ":"))
        for name, steps in transcripts.items()
        for step in steps
    ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Without a time in it, the same transcripts are the same file.
    _path(level).write_bytes(gzip.compress("".join(f"{each}\n" for each in lines).encode(), 9, mtime=0))


def read_golden(level: str) -> dict[str, list[dict[str, Any]]]:
    transcripts: dict[str, list[dict[str, Any]]] = {}
    for line in gzip.decompress(_path(level).read_bytes()).splitlines():
        step = json.loads(line)
        transcripts.setdefault(step.pop("scenario"), []).append(step)
    return transcripts


def _path(level: str) -> Path:
    return FOLDER / f"{level}.jsonl.gz"


def shown(transcripts: Mapping[str, Transcript]) -> str:
    """For people: a line a request and a line a write."""
    lines = []
    for name, steps in transcripts.items():
        for step in steps:
            lines += [f"== {name}: {step['step']}", *shown_step(step)]
    return "\n".join(lines)


def shown_step(step: Mapping[str, Any]) -> list[str]:
    lines = [f"  reply {json.dumps(each)}" for each in step["replies"]]
    lines += [
        f"  write {' '.join(each if isinstance(each, str) else json.dumps(each) for each in write)}"
        for write in step["writes"]
    ]
    for broker_id, requests in step["requests"].items():
        for api, version, body in requests:
            lines.append(f"  {broker_id} {api} {version} {_brief(api, body)}")
    return lines


def _brief(api: str, body: Mapping[str, Any]) -> str:
    states = [
        f"{topic['topicName']}-{state['partitionIndex']}"
        + json.dumps({key: each for key, each in state.items() if key != "partitionIndex"}).replace('"', "")
        for topic in body["topicStates"]
        for state in topic["partitionStates"]
    ]
    other = {
        key: each for key, each in body.items() if key not in ("topicStates", "liveBrokers", "liveLeaders")
    }
    live = [
        each.get("id", each.get("brokerId")) for each in body.get("liveBrokers", body.get("liveLeaders", []))
    ]
    return f"{json.dumps(other)} live {live} " + "".join(f"\n      {each}" for each in states)
