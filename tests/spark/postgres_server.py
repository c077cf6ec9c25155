"""A PostgreSQL server of Debian's package for a test process: in a temporary directory, on a free port of loopback."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.testing import free_port

PROGRAMS = "/usr/lib/postgresql/*/bin"
PASSWORD = "s3cret-w0rd"
# A test's server need not survive a power cut.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
ATTEMPTS_MAX = 5
START_S_MAX = 120


def find_program(name: str) -> str:
    folders = sorted(glob.glob(PROGRAMS), key=lambda path: float(path.split("/")[-2]), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(
            f"needs a PostgreSQL server: there is no {name} on the PATH or in {PROGRAMS} "
            "(Debian: apt-get install postgresql)"
        )
    return found


def other_user() -> str | None:
    """The server refuses to be root: who it is instead, if we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    pytest.skip("needs a PostgreSQL server: it does not run as root, and there is no user postgres or nobody")


def run(user: str | None, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S_MAX,
        check=False,
    )


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a running server's database."""
    initdb, pg_ctl = find_program("initdb"), find_program("pg_ctl")
    user = other_user()
    # Not below pytest's folder, and not where a variable says that may be root's own: another user must get there.
    folder = Path(tempfile.mkdtemp(prefix="barnabas-postgres-", dir=None if user is None else "/tmp"))
    try:
        folder.chmod(0o755)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if user is not None:
            shutil.chown(folder, user)
            shutil.chown(secret, user)
        data = str(folder / "data")
        made = run(
            user,
            [
                *(initdb, "-D", data, "-U", "barnabas", "-A", "scram-sha-256", "--no-sync", "-E", "UTF8"),
                *("--pwfile", str(secret), "--locale", "C"),
            ],
            folder,
        )
        assert made.returncode == 0, made.stderr
        for attempt in range(ATTEMPTS_MAX):
            port = free_port()
            settings = {**SETTINGS, "port": str(port)}
            options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
            log = folder / f"log-{attempt}"
            # With output to a pipe that the server would inherit, the call would last as long as the server.
            started = run(
                user,
                [
                    "/bin/sh",
                    "-c",
                    f'exec "{pg_ctl}" start -D "{data}" -w -t {START_S_MAX} -l "{log}" -o "$0"',
                    options,
                ],
                folder,
            )
            if started.returncode == 0:
                break
        else:
            raise AssertionError(f"PostgreSQL does not start: {log.read_text()}")
        try:
            yield f"postgresql://barnabas:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            run(user, [pg_ctl, "stop", "-D", data, "-m", "immediate", "-w"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
