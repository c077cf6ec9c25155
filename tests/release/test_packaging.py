"""The Containerfile, the systemd units, the completions and the workflow agree with the package and with each other."""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from barnabas.cli.main import COMMANDS
from barnabas.cli.pipelines.run import run
from barnabas.config.broker_config import BrokerConfig, unknown_settings, warnings_about
from barnabas.config.properties import load_properties
from tools import dist, notice

ROOT: Final = Path(__file__).parents[2]
UNITS: Final = sorted((ROOT / "packaging" / "systemd").glob("*.service"))
WORKFLOW: Final = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
TIMEOUT_S: Final = 60


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each on one line and without comments."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    split = (line.split(maxsplit=1) for line in lines if line.strip())
    return [(word, re.sub(r"\s+", " ", rest).strip()) for word, rest in split]


def last_stage() -> dict[str, str]:
    """The instructions after the last FROM."""
    found = instructions()
    start = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    return dict(found[start:])


def container_settings() -> dict[str, str]:
    return load_properties(str(ROOT / "packaging" / "container" / "server.properties"))


def test_the_container_runs_without_rights_and_is_watched() -> None:
    stage = last_stage()
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", stage["USER"]), (
        "by number: Kubernetes checks runAsNonRoot by it"
    )
    settings = container_settings()
    assert stage["VOLUME"] == stage["WORKDIR"] == settings["log.dirs"]
    ports = [settings["listeners"].rpartition(":")[2], settings["barnabas.metrics.port"]]
    assert stage["EXPOSE"].split() == ports
    assert f"http://127.0.0.1:{ports[1]}/health" in stage["HEALTHCHECK"]
    assert "/etc/barnabas/server.properties" in stage["ENTRYPOINT"]
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_the_settings_of_the_container_are_good() -> None:
    settings = container_settings()
    assert unknown_settings(settings) == []
    assert list(warnings_about(settings)) == []
    assert BrokerConfig(settings).barnabas_metrics_port == 9404


def test_the_container_gets_what_it_copies() -> None:
    patterns = (ROOT / ".containerignore").read_text().splitlines()
    kept = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    assert "*" in patterns
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    for source in [name for names in copied for name in names]:
        assert (ROOT / source).exists(), source
        assert any(source == name or fnmatch.fnmatch(source, f"{name}/*") for name in kept), source


def test_the_container_keeps_no_compiler_of_python() -> None:
    removed = set(re.findall(r"uninstall --yes ([a-z -]+)", " ".join(rest for _, rest in instructions())))
    names = set(" ".join(removed).split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert names == (notice.pins()["build"] - needed) | {"pip"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_hardened_and_name_commands_that_exist(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    service = parser["Service"]
    program, command, *_ = service["ExecStart"].split()
    assert Path(program).name == "barnabas"
    assert command in COMMANDS
    assert int(service["LimitNOFILE"]) >= 65_536
    assert service["User"] == "barnabas"
    for setting in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictSUIDSGID", "LockPersonality"):
        assert service[setting] == "yes", setting
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
    assert service["Restart"] == "on-failure"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"


def test_the_unit_of_pipelines_agrees_with_its_command() -> None:
    """It starts again after the codes for which the guide says that this helps, and may write where it writes."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "packaging" / "systemd" / "barnabas-pipeline@.service")
    service = parser["Service"]
    guide = (ROOT / "docs" / "PIPELINES.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|$", guide, re.MULTILINE)
    useless = [code for code, helps in rows if helps.startswith("does not help")]
    assert useless == ["1", "2", "4"]
    assert service["RestartPreventExitStatus"].split() == useless
    assert f"`RestartPreventExitStatus={' '.join(useless)}`" in guide
    assert f"`KillMode={service['KillMode']}`" in guide
    _, _, subcommand, *arguments = service["ExecStart"].split()
    assert subcommand == "run"
    parsed = run.make_context(
        "run", [Path(each).name if "/etc/" in each else each for each in arguments], resilient_parsing=True
    )
    # With ProtectSystem=strict it can write nowhere else.
    assert parsed.params["checkpoint"] == f"/var/lib/{service['StateDirectory']}/%i"
    stop_s = re.fullmatch(r"(\d+)s", service["TimeoutStopSec"])
    assert stop_s is not None
    assert int(stop_s[1]) >= parsed.params["stop_timeout_s"] + 15


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    files = []
    for unit in UNITS:
        # An instance of the template; and a program that exists here.
        file = tmp_path / unit.name.replace("@.", "@orders.")
        file.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
        files.append(str(file))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if "Failed to" in done.stderr and "manager" in done.stderr:
        pytest.skip(f"needs a place where systemd-analyze runs: {done.stderr}")
    # systemd before 254 does not know the steps of the back-off.
    known = re.compile(r"Unknown key '(RestartSteps|RestartMaxDelaySec)'|barnabas-pipeline@\.service")
    said = [line for line in done.stderr.splitlines() if tmp_path.name in line and not known.search(line)]
    assert (done.returncode, said) == (0, [])


def denied_calls(unit: Path) -> set[str]:
    """The system calls that the unit takes away from @system-service, by systemd's own lists."""
    groups = re.findall(r"^SystemCallFilter=~(.+)$", unit.read_text(), re.MULTILINE)
    names = " ".join(groups).split()
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", *names],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return set(re.findall(r"^    (\w+)$", done.stdout, re.MULTILINE)) if names else set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_leave_the_system_calls_of_workers(unit: Path) -> None:
    """Workers lower their priority, the limit of their memory, and the class of their threads."""
    assert not {"setpriority", "setrlimit", "prlimit64", "sched_setscheduler"} & denied_calls(unit)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_little_exposed(unit: Path, tmp_path: Path) -> None:
    """systemd counts from 0 to 10 (here 0 to 100) what a service could do beyond its work."""
    file = tmp_path / unit.name.replace("@.", "@orders.")
    file.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=30", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_accept_the_completions(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"needs {shell}")
    script = subprocess.run(
        [sys.executable, "-m", "barnabas", "completion", shell],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    ).stdout
    done = subprocess.run([program, "-n"], input=script, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_workflow_runs_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"run: make (\S+)", WORKFLOW)
    assert {"check", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for module in re.findall(r"python -m (tools\.\w+)", WORKFLOW):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    assert "docker build --file Containerfile" in WORKFLOW


def test_wheels_are_built_for_the_same_pythons_everywhere() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheels = settings["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp3{minor}-*" for minor in dist.MINORS]
    names = [f"3.{minor}" for minor in dist.MINORS]
    kinds = [each.rpartition(" :: ") for each in settings["project"]["classifiers"]]
    assert [name for kind, _, name in kinds if kind == "Programming Language :: Python"] == names
    assert f"python: {json.dumps(names)}" in WORKFLOW
    assert wheels["environment"] == {"BARNABAS_COMPILE": "1"}
    (script,) = re.findall(r"\{project\}/(\S+)", wheels["test-command"])
    assert (ROOT / script).exists()
