"""Our controller sends and writes what a controller of Apache Kafka 3.9.1 does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.coordination.controllers import PATIENCE_S
from tests.transcripts.comparison import differences
from tests.transcripts.golden import LEVELS, Transcript, read_golden
from tests.transcripts.own_world import own_world
from tests.transcripts.scenarios import SCENARIOS, run_scenario

MARKED_MOVE = "both"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_our_controller_does_the_same(scenario: str, level: str, tmp_path: Path) -> None:
    async def run() -> list[dict[str, Any]]:
        async with own_world(level, tmp_path) as world:
            return await run_scenario(world, scenario)

    ours: Transcript = asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    golden: Transcript = read_golden(level)[scenario]
    if scenario == "takeover_of_unfinished":
        golden, ours = without_marked_move(golden), without_marked_move(ours)
    found = differences(golden, ours)
    assert not found, "\n".join(found)
    # Nor does it repeat what has no effect more often.
    assert requests_of(ours) <= requests_of(golden)


def requests_of(transcript: Transcript) -> int:
    return sum(len(each) for step in transcript for each in step["requests"].values())


def without_marked_move(transcript: Transcript) -> Transcript:
    """Without the topic that is marked and being moved: Kafka waits with its deletion, and we do not."""
    return [
        {
            **step,
            "writes": [write for write in step["writes"] if MARKED_MOVE not in write[1].split("/")],
            "requests": {
                broker: [each for each in map(_without_topic, requests) if each is not None]
                for broker, requests in step["requests"].items()
            },
        }
        for step in transcript
        if step["step"] != "the move of a marked topic is complete"
    ]


def _without_topic(request: Sequence[Any]) -> list[Any] | None:
    api, version, body = request
    states = [each for each in body["topicStates"] if each["topicName"] != MARKED_MOVE]
    if not states and body["topicStates"] and api != "UpdateMetadata":
        return None
    return [api, version, {**body, "topicStates": states}]
