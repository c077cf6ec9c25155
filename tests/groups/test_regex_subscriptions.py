"""Members that subscribe to a regular expression: resolved beside the requests, some topics at a time."""

from __future__ import annotations

import pytest

from barnabas.errors import NONE, InvalidRegularExpression, NotEnoughReplicas
from barnabas.groups.regex_resolution import MATCHES_AT_ONCE
from barnabas.groups.settings import GroupSettings
from barnabas.groups.timers import TimerKind
from tests.groups.requests import assigned, beat
from tests.groups.shell import GROUP, Shell
from tests.groups.topics import image_of, topic_id


@pytest.fixture
def shell() -> Shell:
    settings = GroupSettings(consumer_assignment_interval_ms=0)
    return Shell(settings, image=image_of({"ta": 1, "tb": 1, "other": 1}))


def resolve(shell: Shell) -> None:
    while any(key.kind is TimerKind.REGEX for key in shell.timers):
        shell.advance_ms(1)


def test_topics_are_found_beside_the_request(shell: Shell) -> None:
    joined = beat(shell, "a", regex="t.")
    assert (joined.member_epoch, assigned(joined)) == (1, {})
    resolve(shell)
    found = beat(shell, "a", 1)
    assert (found.member_epoch, assigned(found)) == (2, {topic_id("ta"): [0], topic_id("tb"): [0]})
    [member] = shell.coordinator.describe_consumer_group(GROUP).members
    assert member.subscribed_topic_regex == "t."
    # A member that brings the same expression is assigned at once.
    assert beat(shell, "b", regex="t.").member_epoch == 3


def test_names_and_an_expression_together(shell: Shell) -> None:
    beat(shell, "a", regex="ta", topics=("other",))
    resolve(shell)
    assert assigned(beat(shell, "a", 2)) == {topic_id("other"): [0], topic_id("ta"): [0]}


def test_an_expression_has_to_match_as_a_whole(shell: Shell) -> None:
    beat(shell, "a", regex="t")
    resolve(shell)
    assert beat(shell, "a", 1).member_epoch == 1


def test_new_topics_are_found_but_not_all_the_time(shell: Shell) -> None:
    beat(shell, "a", regex="t.")
    resolve(shell)
    beat(shell, "a", 1)
    shell.set_topics(image_of({"ta": 1, "tb": 1, "tc": 1}))
    # All expressions of a group are resolved together, and not within ten seconds of the last time.
    assert beat(shell, "a", 2).member_epoch == 2
    resolve(shell)
    assert beat(shell, "a", 2).member_epoch == 2
    shell.advance_ms(10_001)
    beat(shell, "a", 2)
    resolve(shell)
    found = assigned(beat(shell, "a", 2))
    assert found is not None
    assert topic_id("tc") in found
    # A topic that goes is noticed at once, as for any other subscription.
    shell.set_topics(image_of({"ta": 1, "tb": 1}))
    gone = beat(shell, "a", 3, owned={topic_id("ta"): [0], topic_id("tb"): [0]})
    assert assigned(gone) == {topic_id("ta"): [0], topic_id("tb"): [0]}


def test_another_expression(shell: Shell) -> None:
    beat(shell, "a", regex="t.")
    resolve(shell)
    beat(shell, "a", 1)
    shell.advance_ms(11_000)
    changed = beat(shell, "a", 2, regex="o.*", owned={})
    # What does not match any more is taken away before the new one is resolved.
    assert assigned(changed) == {}
    resolve(shell)
    assert assigned(beat(shell, "a", 2)) == {topic_id("other"): [0]}
    # And to names again.
    names = beat(shell, "a", 3, regex="", topics=("ta",), owned={})
    assert assigned(names) == {topic_id("ta"): [0]}
    assert shell.reloaded().coordinator.describe_consumer_group(GROUP).group_epoch == 4


def test_an_expression_that_cannot_be_written_is_resolved_again(shell: Shell) -> None:
    beat(shell, "a", regex="t.")
    shell.append_error = NotEnoughReplicas()
    resolve(shell)
    shell.append_error = None
    assert beat(shell, "a", 1).member_epoch == 1
    resolve(shell)
    assert beat(shell, "a", 1).member_epoch == 2


def test_an_expression_is_resolved_again_after_a_failover(shell: Shell) -> None:
    beat(shell, "a", regex="t.")
    resolve(shell)
    beat(shell, "a", 1)
    shell.set_topics(image_of({"ta": 1, "tb": 1, "tc": 1}))
    other = shell.reloaded()
    other.advance_ms(11_000)
    beat(other, "a", 2)
    resolve(other)
    found = assigned(beat(other, "a", 2))
    assert found is not None
    assert topic_id("tc") in found


def test_many_topics_are_matched_in_parts() -> None:
    names = [f"topic-{number}" for number in range(3 * MATCHES_AT_ONCE)]
    shell = Shell(GroupSettings(), image=image_of(dict.fromkeys(names, 1)))
    beat(shell, "a", regex="topic-.*")
    beat(shell, "b", regex="nothing")
    parts = 0
    while any(key.kind is TimerKind.REGEX for key in shell.timers):
        shell.advance_ms(1)
        parts += 1
    assert parts == 3
    shell.advance_ms(1_000)
    found = assigned(beat(shell, "a", 1))
    assert found is not None
    assert len(found) == len(names)


@pytest.mark.parametrize("regex", ["(", "[a", "a{2,1}", "(?<=a)b", r"\1", "(?P<", "((a{99}){99}){9}"])
def test_bad_expressions(shell: Shell, regex: str) -> None:
    refused = beat(shell, "a", regex=regex)
    assert refused.error_code == InvalidRegularExpression.code
    assert refused.error_message is not None
    assert regex in refused.error_message
    assert shell.coordinator.list_groups() == []


def test_a_bad_expression_does_not_keep_a_static_member_that_is_away(shell: Shell) -> None:
    beat(shell, "a", instance_id="i", topics=("ta",))
    beat(shell, "a", -2, instance_id="i")
    refused = beat(shell, "b", instance_id="i", regex="(")
    assert refused.error_code == InvalidRegularExpression.code
    shell.advance_ms(shell.settings.consumer_session_timeout_ms)
    assert shell.coordinator.describe_consumer_group(GROUP).members == []


def test_an_expression_that_is_slow_elsewhere(shell: Shell) -> None:
    shell.set_topics(image_of({"a" * 200: 1}))
    assert beat(shell, "a", regex="(a+)+b").error_code == NONE
    resolve(shell)
    assert beat(shell, "a", 1).member_epoch == 1
