from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.log import checkpoints
from barnabas.log.checkpoints import BadCheckpoint, CleanStop, MetaProperties
from barnabas.log.file_system import FileSystem
from barnabas.model import TopicPartition
from tests.log.simulated import SimulatedFileSystem
from tests.sampling import cases

PATH = "/file"
TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def put(fs: FileSystem, content: str | bytes) -> None:
    fs.write_atomically(PATH, content.encode() if isinstance(content, str) else content)


def test_offsets_have_kafkas_format(fs: SimulatedFileSystem) -> None:
    checkpoints.write_offsets(fs, PATH, {TopicPartition("t", 1): 42, TopicPartition("a.b-c", 0): 2**62})
    assert fs.read_file(PATH) == b"0\n3\na.b-c 0 4611686018427387904\nt 1 42\nbarnabas:crc32c 0 1073679119\n"
    assert checkpoints.read_checked_offsets(fs, PATH) == (
        {TopicPartition("t", 1): 42, TopicPartition("a.b-c", 0): 2**62},
        True,
        False,
    )


def test_any_damage_of_offsets_is_noticed(fs: SimulatedFileSystem) -> None:
    checkpoints.write_offsets(fs, PATH, {TopicPartition("t", 1): 42, TopicPartition("u", 0): 7})
    whole = fs.read_file(PATH)
    damaged = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in range(8)
    ]
    for data in [*damaged, *(whole[:end] for end in range(len(whole)))]:
        try:
            found = checkpoints.parse_checked_offsets(data, PATH)
        except BadCheckpoint:
            continue
        # Damage does not look like a file of another broker.
        assert not found.is_foreign, data
        # White space may have become other white space.
        assert not found.is_checked or found == checkpoints.parse_checked_offsets(whole, PATH), data


def test_offsets_of_kafka_have_no_checksum(fs: SimulatedFileSystem) -> None:
    put(fs, "0\n1\nt 1 42\n")
    assert checkpoints.read_checked_offsets(fs, PATH) == (
        {TopicPartition("t", 1): 42},
        False,
        True,
    )


def test_epochs_have_kafkas_format(fs: SimulatedFileSystem) -> None:
    checkpoints.write_epochs(fs, PATH, [(0, 0), (3, 1017)])
    assert fs.read_file(PATH) == b"0\n2\n0 0\n3 1017\n"
    assert checkpoints.read_epochs(fs, PATH) == [(0, 0), (3, 1017)]


@pytest.mark.parametrize("content", ["", "0\n", "0\n0\n", "0\r\n0\r\n"])
def test_a_checkpoint_without_entries_is_empty(fs: SimulatedFileSystem, content: str) -> None:
    put(fs, content)
    assert checkpoints.read_offsets(fs, PATH) == {}
    assert checkpoints.read_epochs(fs, PATH) == []


def test_a_missing_file_holds_nothing(fs: SimulatedFileSystem) -> None:
    assert checkpoints.read_offsets(fs, PATH) == {}
    assert checkpoints.read_epochs(fs, PATH) == []
    assert checkpoints.read_topic_id(fs, PATH) is None
    assert checkpoints.read_meta_properties(fs, PATH) is None
    assert checkpoints.read_clean_shutdown(fs, PATH) is None


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("1\n0\n", "unknown version 1"),
        ("x\n0\n", "line 1"),
        ("\n", "line 1"),
        ("0\nmany\n", "line 2"),
        ("0\n2\nt 0 1\n", "1 entries where it says it has 2"),
        ("0\n1\nt 0 1\nt 1 1\n", "2 entries where it says it has 1"),
        ("0\n1\nt 0\n", "line 3"),
        ("0\n1\nt 0 1 2\n", "line 3"),
        ("0\n2\nt 0 1\n\n", "line 4"),
        ("0\n1\nt 2147483648 1\n", "line 3"),
        ("0\n1\nt 0 9223372036854775808\n", "line 3"),
        ("0\n1\nt 0 1_0\n", "line 3"),
        ("0\n1\nt 0 ٣\n", "line 3"),
        (b"0\n1\n\xff\xfe 0 1\n", "no text"),
        (b"\0" * 100, "line 1"),
    ],
)
def test_bad_offsets_name_file_and_line(fs: SimulatedFileSystem, content: str | bytes, what: str) -> None:
    put(fs, content)
    with pytest.raises(BadCheckpoint, match=what) as raised:
        checkpoints.read_offsets(fs, PATH)
    assert PATH in str(raised.value)


@given(st.binary(max_size=60) | st.text(alphabet="0129 \r\n-+t:=_ersion", max_size=40).map(str.encode))
@settings(
    derandomize=True,
    deadline=None,
    max_examples=cases(300, fast=60),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for parse in (
        checkpoints.parse_offsets,
        checkpoints.parse_epochs,
        checkpoints.parse_topic_id,
        checkpoints.parse_meta_properties,
    ):
        with suppress(BadCheckpoint):
            parse(data, PATH)


def test_partition_metadata_has_kafkas_format(fs: SimulatedFileSystem) -> None:
    checkpoints.write_topic_id(fs, PATH, TOPIC_ID)
    assert fs.read_file(PATH) == f"version: 0\ntopic_id: {TOPIC_ID_TEXT}\ncrc32c: 509914241".encode()
    assert checkpoints.read_topic_id(fs, PATH) == TOPIC_ID
    put(fs, f"version: 0\ntopic_id: {TOPIC_ID_TEXT}")
    assert checkpoints.read_topic_id(fs, PATH) == TOPIC_ID


def test_a_damaged_topic_id_is_noticed(fs: SimulatedFileSystem) -> None:
    checkpoints.write_topic_id(fs, PATH, TOPIC_ID)
    whole = fs.read_file(PATH)
    for at in range(len(whole)):
        for bit in range(8):
            put(fs, whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            assert checkpoints.read_topic_id(fs, PATH) in (None, TOPIC_ID)


def test_partition_metadata_of_a_later_version_is_read(fs: SimulatedFileSystem) -> None:
    put(fs, f"version: 1\ntopic_id: {TOPIC_ID_TEXT}\n")
    assert checkpoints.read_topic_id(fs, PATH) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        "",
        "version: 0",
        f"topic_id: {TOPIC_ID_TEXT}\nversion: 0",
        f"version: x\ntopic_id: {TOPIC_ID_TEXT}",
        f"version: -1\ntopic_id: {TOPIC_ID_TEXT}",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version: 0\ntopic_id: AAEC",
        "version: 0\ntopic_id: !!ECAwQFBgcICQoLDA0ODw",
    ],
)
def test_bad_partition_metadata_is_refused(fs: SimulatedFileSystem, content: str) -> None:
    put(fs, content)
    with pytest.raises(BadCheckpoint, match=PATH):
        checkpoints.parse_topic_id(fs.read_file(PATH), PATH)
    assert checkpoints.read_topic_id(fs, PATH) is None


def test_meta_properties_of_both_versions_are_read(fs: SimulatedFileSystem) -> None:
    put(fs, "#\n#Sun Nov 15 07:23:48 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=0ZjvcGUdT3-Ouxzp_9Tzvw\n")
    assert checkpoints.read_meta_properties(fs, PATH) == MetaProperties(
        version=0, broker_id=1, cluster_id="0ZjvcGUdT3-Ouxzp_9Tzvw"
    )
    put(fs, f"node.id=7\nversion=1\ncluster.id=c\ndirectory.id={TOPIC_ID_TEXT}\n")
    assert checkpoints.read_meta_properties(fs, PATH) == MetaProperties(
        version=1, broker_id=7, cluster_id="c", directory_id=TOPIC_ID_TEXT
    )


@pytest.mark.parametrize(
    "meta",
    [
        MetaProperties(),
        MetaProperties(broker_id=3, cluster_id="back\\slash = and: more"),
        MetaProperties(version=1, broker_id=0, cluster_id="c", directory_id=TOPIC_ID_TEXT),
    ],
)
def test_meta_properties_are_read_back(fs: SimulatedFileSystem, meta: MetaProperties) -> None:
    checkpoints.write_meta_properties(fs, PATH, meta)
    assert checkpoints.read_meta_properties(fs, PATH) == meta


@pytest.mark.parametrize(
    "content",
    [
        "version=2\n",
        "version=zero\n",
        "version=0\nbroker.id=one\n",
        "version=1\ncluster.id=c\n",
        "version=1\nnode.id=1\n",
        "version=0\ndirectory.id=short\n",
        "broker.id=\\u00\n",
    ],
)
def test_bad_meta_properties_are_refused(fs: SimulatedFileSystem, content: str) -> None:
    put(fs, content)
    with pytest.raises(BadCheckpoint, match=PATH):
        checkpoints.read_meta_properties(fs, PATH)


def test_a_clean_shutdown_is_noted_as_kafka_does(fs: SimulatedFileSystem) -> None:
    checkpoints.write_clean_shutdown(fs, PATH)
    assert fs.read_file(PATH) == b'{"version":0,"brokerEpoch":-1,"sideFiles":true}'
    checkpoints.write_clean_shutdown(fs, PATH, broker_epoch=77)
    assert checkpoints.read_clean_shutdown(fs, PATH) == CleanStop(77, True)


@pytest.mark.parametrize(("content", "epoch"), [("", -1), ('{"version":0,"brokerEpoch":77}', 77)])
def test_a_clean_shutdown_of_kafka_lists_no_side_files(
    fs: SimulatedFileSystem, content: str, epoch: int
) -> None:
    put(fs, content)
    assert checkpoints.read_clean_shutdown(fs, PATH) == CleanStop(epoch, False)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        "[" * 100_000,
        '{"brokerEpoch":"x"}',
        b"\xff",
        '{"version":0,"brokerEpoch":-1,"sideFilet":true}',
        '{"version":8,"brokerEpoch":-1,"sideFiles":true}',
        '{"version":0,"brokerEpoch":-1,"sideFiles":tr',
    ],
)
def test_what_no_broker_leaves_is_no_clean_shutdown(fs: SimulatedFileSystem, content: str | bytes) -> None:
    put(fs, content)
    assert checkpoints.read_clean_shutdown(fs, PATH) is None
