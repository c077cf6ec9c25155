"""What a start costs: in processor time of a child, and by what it must not load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELP = ["-m", "barnabas", "--help"]
PROTOCOL = ["apis", "codec", "errors", "frames", "json_form", "messages", "requests", "schema"]
IMPORT = ["-c", "import " + ", ".join(f"barnabas.protocol.{module}" for module in PROTOCOL)]

# The promise on a plain machine of today, and how much slower than that the machine of a test may be.
HELP_BOUND_MS = 150
IMPORT_BOUND_MS = 60
SLACK = 5
ATTEMPTS = 5

# What neither of them needs. Each of these costs milliseconds, and is easily loaded by accident.
NEVER = [
    "asyncio",
    "concurrent.futures",
    "cramjam",
    "email",
    "http",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "rich",
    "sqlite3",
    "ssl",
    "subprocess",
    "urllib",
    "xml",
]
NOT_FOR_HELP = [
    *NEVER,
    "barnabas.log",
    "barnabas.protocol",
    "barnabas.records",
    "dataclasses",
    "json",
    "socket",
]
NOT_FOR_CLIENTS = ["barnabas.cli", "numpy", "pandas", "pyarrow", "pyspark"]
# What only the broker of a cluster needs.
NOT_FOR_ONE_NODE = [
    "barnabas.broker.coordinators.destinations",
    "barnabas.broker.coordinators.remote_markers",
    "barnabas.broker.coordinators.remote_verification",
    "barnabas.coordination.writing.controller_producer_ids",
    "barnabas.peers",
    "kazoo",
]
# What a broker does without until a client, a setting or a cluster needs it. A dataclass costs half a millisecond, see
# `barnabas.value`; uuid and datetime are not here, since click loads them.
NOT_FOR_BROKERS = [
    "barnabas.aio",
    "barnabas.broker.handlers.records",
    "barnabas.client",
    "barnabas.coordination.store.zookeeper",
    "barnabas.groups.coordinator",
    "barnabas.log.cleaner.cleaner",
    "barnabas.peers",
    "barnabas.protocol.decoders",
    "barnabas.replication.fetcher",
    "barnabas.server.zookeeper",
    "cramjam",
    "dataclasses",
    "email",
    "getpass",
    "hashlib",
    "http",
    "importlib.metadata",
    "kazoo",
    "multiprocessing",
    "numpy",
    "pathlib",
    "rich",
    "shutil",
    "sqlite3",
    "tempfile",
    "urllib.parse",
]
# Each module takes a quarter of a millisecond and thirty kilobytes on the average. A broker that has started has loaded
# 280 of ours and 179 others on Python 3.11. Other versions of Python divide their library differently.
OWN_MODULES_MAX = 310
OTHER_MODULES_MAX = 210
NOT_FOR_IMPORT = [*NEVER, "barnabas.cli", "barnabas.protocol.messages.fetch_request", "click", "socket"]


def processor_ms(arguments: list[str]) -> float:
    # The first child may have to compile what the others find in the cache.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=environment) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return (usage.ru_utime + usage.ru_stime) * 1000


def modules_after(code: str) -> set[str]:
    """The modules that are loaded in a child once it has run `code`."""
    code += "\nimport sys, json\nprint(json.dumps(loaded), file=sys.stderr)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(child.stderr.splitlines()[-1]))


def best_ms(arguments: list[str]) -> float:
    return min(processor_ms(arguments) for _ in range(ATTEMPTS))


def test_help_is_fast() -> None:
    spent_ms = best_ms(HELP)
    print(f"barnabas --help: {spent_ms:.0f} ms of processor time, promised are {HELP_BOUND_MS}")
    assert spent_ms < HELP_BOUND_MS * SLACK


def test_the_protocol_is_loaded_fast() -> None:
    """All of its modules but the message types, beyond what Python itself takes to start."""
    spent_ms = best_ms(IMPORT) - best_ms(["-c", "pass"])
    print(f"import barnabas.protocol.*: {spent_ms:.0f} ms of processor time, promised are {IMPORT_BOUND_MS}")
    assert spent_ms < IMPORT_BOUND_MS * SLACK


AFTER_HELP = """
import sys
from barnabas.cli.main import main
sys.argv = ["barnabas", "--help"]
try:
    main()
except SystemExit:
    loaded = list(sys.modules)
"""
AFTER_IMPORT = f"""
{IMPORT[1]}
import sys
loaded = list(sys.modules)
"""
AFTER_CLIENTS = """
import barnabas, barnabas.aio
with barnabas.Consumer(bootstrap_servers="127.0.0.1:1"), barnabas.Producer(bootstrap_servers="127.0.0.1:1"):
    import sys
    loaded = list(sys.modules)
"""
AFTER_SERVER = """
import barnabas.server.server
import sys
loaded = list(sys.modules)
"""

# As the command does, up to the moment when clients may connect.
AFTER_START = """
import asyncio, os, sys
import barnabas.cli.main, barnabas.cli.start
from barnabas.config.broker_config import BrokerConfig
from barnabas.net.busy_poll import new_event_loop
from barnabas.server.server import Server

async def start_and_stop():
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": os.environ["LOG_DIRECTORY"]}
    server = Server(BrokerConfig(settings))
    await server.start()
    found = list(sys.modules)
    await server.stop()
    return found

with asyncio.Runner(loop_factory=lambda: new_event_loop(0)) as runner:
    loaded = runner.run(start_and_stop())
"""


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (AFTER_HELP, NOT_FOR_HELP),
        (AFTER_IMPORT, NOT_FOR_IMPORT),
        (AFTER_CLIENTS, NOT_FOR_CLIENTS),
        (AFTER_SERVER, NOT_FOR_ONE_NODE),
    ],
    ids=["help", "import", "clients", "server"],
)
def test_nothing_heavy_is_loaded(code: str, unwanted: list[str]) -> None:
    loaded = modules_after(code)
    assert "barnabas" in loaded
    assert not [name for name in unwanted if name in loaded]


def test_a_broker_starts_with_few_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_DIRECTORY", str(tmp_path / "data"))
    loaded = modules_after(AFTER_START)
    assert not [name for name in NOT_FOR_BROKERS if name in loaded]
    own = {name for name in loaded if name.partition(".")[0] == "barnabas"}
    print(f"a started broker has loaded {len(own)} modules of ours and {len(loaded - own)} others")
    assert len(own) <= OWN_MODULES_MAX, sorted(own)
    assert len(loaded - own) <= OTHER_MODULES_MAX, sorted(loaded - own)
