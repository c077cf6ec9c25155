"""A broker whose store, or whose meta.properties, is damaged or gone: topics keep their settings and their records."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.store.journal import COPY_FILE, STORE_FILE
from barnabas.errors import InconsistentClusterId, InvalidConfig, KafkaStorageError
from tests.broker.config_requests import DELETE, SET, TOPIC, describe, incremental
from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.broker.running import RunningBroker

FILES = (STORE_FILE, COPY_FILE)
META = "meta.properties"
# Records that are years old: only a setting of the topic's keeps them.
OLD = batch(b"old", timestamp=1_000_000_000_000)
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a broker leaves behind when it is stopped, and when it is killed."""
    folder = tmp_path_factory.mktemp("left")
    broker = RunningBroker(folder / "stopped", {"log.index.size.max.bytes": "4096"})
    with broker, broker.client() as client:
        create_topic(client, "kept", 2, retention_ms="-1")
        create_topic(client, "small", retention_ms="-1", segment_bytes="2000000")
        assert produce(client, "kept", OLD).error_code == 0
        assert incremental(client, TOPIC, "kept", ("max.message.bytes", SET, "7654321")) == (0, None)
        shutil.copytree(folder / "stopped", folder / "killed")
    return {"stopped": folder / "stopped", "killed": folder / "killed"}


@pytest.fixture(params=["stopped", "killed"])
def directory(left: dict[str, Path], request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left[request.param], tmp_path / "data"))


def check_nothing_is_lost(directory: Path) -> None:
    with RunningBroker(directory) as broker, broker.client() as client:
        settings = describe(client, TOPIC, "kept")
        assert settings["retention.ms"].value == "-1"
        assert settings["max.message.bytes"].value == "7654321"
        assert settings[DELETION_HOLD].value == "false"
        assert describe(client, TOPIC, "small")["segment.bytes"].value == "2000000"
        assert broker.server.broker.log_manager.retain() == 0
        check_record(broker)


def check_record(broker: RunningBroker) -> None:
    with broker.client() as client:
        found = fetch(client, "kept", 0)
        assert found.error_code == 0
        assert values(found.records) == [b"old"]
        assert produce(client, "kept", OLD, partition=1).error_code == 0


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    rng = Random(path.name)
    for _ in range(3):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"garbage")


@pytest.mark.parametrize("damage", [flip, cut, grow, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_one_damaged_file_costs_nothing(directory: Path, name: str, damage: Damage) -> None:
    damage(directory / name)
    check_nothing_is_lost(directory)


def test_damage_to_both_copies_is_refused_until_somebody_accepts_it(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = (directory / STORE_FILE).read_bytes()
    (directory / STORE_FILE).write_bytes(data[:-10])
    (directory / COPY_FILE).write_bytes(b"?" + data[1:])
    with pytest.raises(KafkaStorageError, match=r"damaged in every copy.*barnabas\.accept\.loss="):
        RunningBroker(directory).start()
    overrides = {"barnabas.accept.loss": str(directory / STORE_FILE)}
    with RunningBroker(directory, overrides) as broker, broker.client() as client:
        settings = describe(client, TOPIC, "kept")
        assert (settings["retention.ms"].value, settings[DELETION_HOLD].value) == ("-1", "true")
        check_record(broker)
    assert "may be missing" in caplog.text
    assert f"--delete {DELETION_HOLD}" in caplog.text


def test_of_topics_without_their_settings_nothing_is_deleted(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in FILES:
        (directory / name).unlink()
    with RunningBroker(directory) as broker:
        manager = broker.server.broker.log_manager
        assert manager.retain() == 0
        check_record(broker)
        assert "Topic kept was found on the disk" in caplog.text
        assert f"barnabas configs alter topic TOPIC retention.ms=... --delete {DELETION_HOLD}" in caplog.text
    # That stands in the store: the next start does not forget it.
    caplog.clear()
    with RunningBroker(directory) as broker, broker.client() as client:
        assert "2 topics until their settings are confirmed: kept, small" in caplog.text
        manager = broker.server.broker.log_manager
        assert describe(client, TOPIC, "kept")[DELETION_HOLD].value == "true"
        assert manager.retain() == 0
        check_record(broker)
        assert incremental(client, TOPIC, "kept", (DELETION_HOLD, DELETE, None)) == (0, None)
        assert manager.retain() == 2, "one segment of each partition, by the default of a week"
    caplog.clear()
    with RunningBroker(directory):
        assert "1 topics until their settings are confirmed: small" in caplog.text


def test_directories_that_are_no_topics_lose_nothing(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One is of another topic of the same name, one of a partition that the store does not know."""
    (directory / "kept-0").rename(directory / "kept-2")
    with RunningBroker(directory) as broker:
        assert broker.server.broker.log_manager.retain() == 0
        assert f"{directory / 'kept-2'} belongs to no partition that the store knows" in caplog.text
    assert (directory / "kept-2" / "00000000000000000000.log").stat().st_size == len(OLD)


def meta_damages() -> Iterator[object]:
    yield pytest.param(Path.unlink, id="removed")
    yield pytest.param(lambda path: path.write_bytes(b""), id="emptied")
    yield pytest.param(lambda path: path.write_bytes(b"\xff\x00" * 50), id="nonsense")
    yield pytest.param(
        lambda path: path.write_text(path.read_text().replace("broker.id", "brojer.id")), id="key"
    )
    yield pytest.param(
        lambda path: path.write_text(path.read_text().replace("version=0", "version=9")), id="version"
    )
    yield pytest.param(lambda path: path.write_bytes(path.read_bytes()[:20]), id="cut")


@pytest.mark.parametrize("damage", list(meta_damages()))
def test_a_broker_without_its_meta_properties_knows_who_it_is(
    directory: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    before = (directory / META).read_bytes()
    damage(directory / META)
    check_nothing_is_lost(directory)
    assert (directory / META).read_bytes().split(b"\n")[:3] == before.split(b"\n")[:3]
    assert "it is broker 1001" in caplog.text


@pytest.mark.parametrize("configured", [{}, {"broker.id": "1"}])
def test_meta_properties_that_contradict_the_store_are_named(
    directory: Path, configured: dict[str, str]
) -> None:
    whole = (directory / META).read_text()
    (directory / META).write_text(whole.replace("broker.id=1001", "broker.id=1"))
    with pytest.raises(InvalidConfig, match=r"belong to broker 1001\. If the file is damaged, remove it"):
        RunningBroker(directory, configured).start()
    (directory / META).write_text(whole.replace("cluster.id=", "cluster.id=x"))
    with pytest.raises(
        (InconsistentClusterId, InvalidConfig), match=r"If it is, remove it|log directories belong to broker"
    ):
        RunningBroker(directory, configured).start()
    (directory / META).unlink()
    if configured:
        with pytest.raises(InvalidConfig, match=r"Set broker\.id to 1001"):
            RunningBroker(directory, configured).start()
    check_nothing_is_lost(directory)


def test_one_of_several_directories_tells_for_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    overrides = {"log.dirs": ",".join(map(str, directories)), "broker.id": "7"}
    with RunningBroker(tmp_path, overrides) as broker, broker.client() as client:
        create_topic(client, "kept", 4)
    for directory in directories:
        before = (directory / META).read_text()
        (directory / META).unlink()
        with RunningBroker(tmp_path, {**overrides, "broker.id": "-1"}) as broker:
            assert len(broker.server.broker.replicas) == 4
            assert all(partition.is_leader for partition in broker.server.broker.replicas)
        assert (directory / META).read_text() == before
    (directories[0] / META).write_text(before.replace("broker.id=7", "broker.id=8"))
    with pytest.raises(
        InvalidConfig, match=f"8 in {directories[0]}, 7 in {directories[1]}.*remove that file"
    ):
        RunningBroker(tmp_path, overrides).start()
