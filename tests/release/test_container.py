"""The container, built by buildah without a registry and started: what is in it, who runs it, and that it serves.

The base image is made by debootstrap. Nothing but the temporary directory keeps images.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.testing.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
BASE: Final = "localhost/python-for-barnabas"
IMAGE: Final = "localhost/barnabas"
STEP_TIMEOUT_S: Final = 900
READY_TIMEOUT_S: Final = 60
# What the image adds to its base.
ADDED_BYTES_MAX: Final = 100 << 20
USER: Final = "10092"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("BARNABAS_SOAK") != "1",
        reason="builds an image, minutes: make soak ARGS=tests/release/test_container.py",
    ),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("buildah", "debootstrap"))),
        reason="needs root, and buildah and debootstrap (Debian: apt-get install buildah debootstrap)",
    ),
]


class Builder:
    """buildah with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        policy = folder / "policy.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.command = [
            *("buildah", "--storage-driver", "vfs"),
            *("--root", str(folder / "storage"), "--runroot", str(folder / "run")),
        ]
        self.policy = ["--signature-policy", str(policy)]
        self.environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def run(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=ROOT,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"buildah {' '.join(arguments)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
        return done.stdout.strip()

    def make_base(self, folder: Path) -> None:
        """A small Debian with Python, and the certificates of this machine."""
        tree = folder / "debian"
        subprocess.run(
            [
                *("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates"),
                *("bookworm", str(tree)),
            ],
            capture_output=True,
            timeout=STEP_TIMEOUT_S,
            check=True,
        )
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", tree / "etc/ssl/certs/ca-certificates.crt")
        shutil.rmtree(tree / "var/cache/apt/archives")
        container = self.run("from", *self.policy, "scratch")
        self.run("add", container, str(tree), "/")
        self.run("config", "--env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt", container)
        self.run("commit", *self.policy, "--rm", container, BASE)
        shutil.rmtree(tree)

    def config_of(self, image: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("inspect", "--type", "image", image))["Docker"]
        return found

    def size_bytes(self, image: str) -> int:
        """Of all files, as a container sees them."""
        container = self.run("from", *self.policy, "--pull-never", image)
        tree = self.run("mount", container)
        used = subprocess.run(
            ["du", "--summarize", "--bytes", tree], capture_output=True, text=True, timeout=60, check=True
        )
        self.run("rm", container)
        return int(used.stdout.split()[0])


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("container")
    builder = Builder(folder)
    try:
        builder.make_base(folder)
        builder.run(
            *("build", *builder.policy, "--pull-never", "--format", "docker"),
            *("--build-arg", f"PYTHON_IMAGE={BASE}", "--file", "Containerfile", "--tag", IMAGE, "."),
        )
        yield builder
    finally:
        builder.run("rm", "--all")
        builder.run("rmi", "--all", "--force")


def test_the_image_is_small_and_says_how_it_is_used(builder: Builder) -> None:
    config = builder.config_of(IMAGE)["config"]
    assert config["User"] == f"{USER}:{USER}"
    assert set(config["ExposedPorts"]) == {"9092/tcp", "9404/tcp"}
    assert "http://127.0.0.1:9404/health" in " ".join(config["Healthcheck"]["Test"])
    assert config["Volumes"].keys() == {"/var/lib/barnabas"}
    added = builder.size_bytes(IMAGE) - builder.size_bytes(BASE)
    assert added < ADDED_BYTES_MAX, f"{added / 1e6:.0f} MB"


def test_the_container_serves_without_rights_and_is_healthy(builder: Builder) -> None:
    config = builder.config_of(IMAGE)["config"]
    container = builder.run("from", *builder.policy, "--pull-never", IMAGE)
    # Without a network of its own: the ports are those of this machine.
    port, metrics = free_ports(1), free_ports(1)
    overrides = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "barnabas.metrics.port": str(metrics),
    }
    arguments = [word for name, value in overrides.items() for word in ("--override", f"{name}={value}")]
    broker = subprocess.Popen(
        [*builder.command, "run", container, "--", *config["Entrypoint"], *arguments],
        env=builder.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await_ready(broker)
        health = [word.replace("9404", str(metrics)) for word in config["Healthcheck"]["Test"][1:]]
        builder.run("run", container, "--", *health)
        assert builder.run("run", container, "--", "id", "-u") == USER
        address = f"127.0.0.1:{port}"
        version = json.loads(
            builder.run("run", container, "--", "barnabas", "version", "--verbose", "--json")
        )
        assert version["compiled"]
        builder.run("run", container, "--", "barnabas", "topics", "create", "orders", "-b", address)
        builder.run("run", container, "--", "barnabas", "produce", "orders", "-b", address, stdin="hello\n")
        assert builder.run("run", container, "--", "barnabas", "consume", "orders", "-b", address) == "hello"
        os.kill(main_process("barnabas", USER), signal.SIGTERM)
        _, log = broker.communicate(timeout=READY_TIMEOUT_S)
        assert broker.returncode == 0, log
    finally:
        broker.kill()
        broker.communicate()
        builder.run("rm", container)


def await_ready(broker: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    assert broker.stderr is not None
    for line in broker.stderr:
        if " Ready after " in line:
            return
        assert time.monotonic() < deadline_s, line
    pytest.fail(f"the broker ended with exit code {broker.wait()} before it was ready")


def main_process(program: str, user: str) -> int:
    """The process of this user that is Python with this program, and not what buildah has started it with."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            words = (status.parent / "cmdline").read_text().split("\0")
        except OSError:
            continue
        is_theirs = re.search(rf"^Uid:\s{user}\s", text, re.MULTILINE)
        if is_theirs and "/python" in words[0] and words[1].endswith(f"/{program}"):
            found.append(int(status.parent.name))
    (pid,) = found
    return pid
