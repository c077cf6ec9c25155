"""Tries an installed Barnabas: version, broker, topic, produce, consume, client. It needs nothing of the repository.

python -I smoke.py [--compiled | --pure]

It runs in the current directory, with the `barnabas` beside the Python that runs it. The last line of its output is
JSON: the seconds from the start of the broker to the first record, and the processor time of the commands in between.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Final

COMMAND: Final = Path(sys.executable).with_name("barnabas")
COMMAND_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30


def barnabas(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"barnabas {' '.join(arguments)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(is_right: bool, what: str) -> None:
    if not is_right:
        sys.exit(f"smoke test: {what}")


def check_installation(arguments: list[str]) -> None:
    found = json.loads(barnabas("version", "--verbose", "--json"))
    site = sysconfig.get_paths()["platlib"]
    check(found["location"].startswith(site), f"barnabas is in {found['location']}, and not in {site}")
    if arguments:
        is_compiled = "--compiled" in arguments
        check(
            found["compiled"] == is_compiled, f"compiled: {found['compiled']}, but {is_compiled} was expected"
        )
    check(all(found["libraries"].values()), f"libraries are missing: {found['libraries']}")
    check("Usage: barnabas" in barnabas("--help"), "no help")
    for shell in ("bash", "zsh", "fish"):
        check("_BARNABAS_COMPLETE" in barnabas("completion", shell), f"no completion for {shell}")


def started_broker(directory: str) -> tuple[subprocess.Popen[str], str]:
    """A broker on a free port, and its address."""
    overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
    pairs = [word for name, value in overrides.items() for word in ("--override", f"{name}={value}")]
    broker = subprocess.Popen([COMMAND, "start", *pairs], stderr=subprocess.PIPE, text=True)
    assert broker.stderr is not None
    address = ""
    # The broker ends with the smoke test, or the stream with the broker: no wait is without an end.
    for line in broker.stderr:
        if "Listening on" in line:
            address = line.partition("PLAINTEXT://")[2].split()[0]
        if "Ready after" in line:
            return broker, address
    sys.exit(f"smoke test: the broker ended with exit code {broker.wait()} before it was ready")


def check_client(address: str) -> None:
    from barnabas import Admin, Consumer, Producer

    with Admin(bootstrap_servers=address) as admin:
        names = {topic.name for topic in admin.list_topics()}
        check("smoke" in names, f"the client sees the topics {names}")
    with Producer(bootstrap_servers=address) as producer:
        producer.send("smoke", b"second").result()
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest", group_id="smoke") as consumer:
        consumer.subscribe(["smoke"])
        values: list[bytes | None] = []
        end_s = time.monotonic() + COMMAND_TIMEOUT_S
        while len(values) < 2 and time.monotonic() < end_s:
            values += [record.value for record in consumer.poll(1000)]
    check(values == [b"first", b"second"], f"the client consumed {values}")


def main() -> None:
    check_installation(sys.argv[1:])
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
        started_s, processor_s = time.monotonic(), children_s()
        broker, address = started_broker(directory)
        try:
            barnabas("topics", "create", "smoke", "-b", address)
            barnabas("produce", "smoke", "-b", address, stdin="first\n")
            consumed = barnabas("consume", "smoke", "-b", address)
            first_record_s = time.monotonic() - started_s
            processor_s = children_s() - processor_s
            check(consumed == "first\n", f"consumed {consumed!r}")
            check_client(address)
            broker.send_signal(signal.SIGTERM)
            check(broker.wait(STOP_TIMEOUT_S) == 0, f"the broker stopped with exit code {broker.returncode}")
        finally:
            broker.kill()
            broker.wait()
    print(json.dumps({"first_record_s": round(first_record_s, 3), "processor_s": round(processor_s, 3)}))


if __name__ == "__main__":
    main()
