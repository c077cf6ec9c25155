"""The archive for workers. tests/spark/cluster uses one on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from barnabas.errors import InvalidConfig
from barnabas.spark.packing import pack, worker_python, worker_settings

# All that is large: a worker cannot read anything without these, but can be imported.
LARGE = ("deltalake", "pyarrow", "pandas", "numpy", "adbc-driver-manager", "adbc-driver-postgresql")


def test_a_bare_python_imports_from_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "workers.tar"
    packages = pack(archive, without=[*LARGE, "Adbc_Driver.SQLite"])
    assert {"barnabas", "crc32c", "cramjam"} <= packages.keys()
    assert not {"pyspark", "py4j", "pyarrow", "adbc-driver-sqlite"} & packages.keys()
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path / "there", filter="data")
    assert not [name for name in names if "__pycache__" in name or name.startswith(("/", ".."))]
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    code = "import barnabas, barnabas.client.reader.partition_reader as it; print(it.__file__)"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": "there"},
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "there" / "barnabas") in os.path.abspath(tmp_path / done.stdout.strip())


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"is not the name of an archive; use \.tar"):
        pack(tmp_path / "workers.rar")
    with pytest.raises(InvalidConfig, match="barnabas pipeline pack"):
        worker_settings(tmp_path / "workers.tar.gz")


def test_settings_of_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "workers.tar.gz"
    archive.touch()
    assert worker_settings(archive) == {
        "spark.archives": f"{archive}#barnabas-workers",
        "spark.executorEnv.PYTHONPATH": "barnabas-workers",
    }
    monkeypatch.setenv("PATH", "/usr/bin")
    name = worker_python()
    assert name == "python{}.{}".format(*sys.version_info[:2])
    assert os.environ["PATH"] == os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin"])
