"""A Kerberos KDC (MIT's, of Debian) on loopback, with a database of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from barnabas.testing import free_port
from tests.waiting import wait_until

REALM: Final = "BARNABAS.TEST"
MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
# Names of hosts are taken as they are: no DNS decides about a test.
_KRB5_CONF: Final = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
_KDC_CONF: Final = """
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        max_life = 10h
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


def find_program(name: str) -> str:
    """Debian has them outside of the PATH of users. Skips the test if it is missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"needs {name} (Debian: apt-get install krb5-admin-server libkrb5-dev)")
    return found


def need_gssapi() -> None:
    pytest.importorskip(
        "gssapi", reason="needs python-gssapi (make setup, or pip install 'barnabas[gssapi]')"
    )


class Kdc:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.krb5_conf = folder / "krb5.conf"
        self.krb5_conf.write_text(_KRB5_CONF.format(realm=REALM, port=self.port))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(realm=REALM, port=self.port, folder=folder))
        self.environment = {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            # Nothing of the machine counts: no ticket of its user, no key of its own.
            "KRB5CCNAME": f"FILE:{folder}/no-tickets",
            "KRB5_KTNAME": f"FILE:{folder}/no-keys",
            "KRB5RCACHEDIR": str(folder),
        }
        self._run(find_program("kdb5_util"), "create", "-s", "-P", "of the database", "-r", REALM)

    def add(self, *principals: str, options: str = "") -> Path:
        """A keytab with new principals."""
        keytab = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self.kadmin(
                f"addprinc {options} -randkey {principal}", f"ktadd -k {keytab} -norandkey {principal}"
            )
        return keytab

    def kadmin(self, *commands: str) -> None:
        for command in commands:
            self._run(find_program("kadmin.local"), "-r", REALM, *command.split())

    def kinit(self, keytab: Path, principal: str, *options: str) -> str:
        """The name of a ticket cache with a ticket."""
        cache = f"FILE:{self.folder}/{principal}.tickets"
        self._run(find_program("kinit"), "-c", cache, "-k", "-t", str(keytab), *options, principal)
        return cache

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """While it runs, this process and its children use it."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            with subprocess.Popen(
                [find_program("krb5kdc"), "-n", "-r", REALM],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                try:
                    wait_until(self._answers, "the KDC listens")
                    yield
                finally:
                    process.terminate()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


def keytab_entry(keytab: Path | str, principal: str, more: str = "") -> str:
    """A JAAS entry."""
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}" {more};'


@contextmanager
def running_kdc(folder: Path) -> Iterator[Kdc]:
    need_gssapi()
    kdc = Kdc(folder)
    with kdc.running():
        yield kdc


def sasl_settings(listener: str, keytab: Path) -> dict[str, str]:
    """Of a broker that has GSSAPI on a listener, with the principal kafka/localhost."""
    return {
        f"listener.name.{listener}.sasl.enabled.mechanisms": "GSSAPI",
        f"listener.name.{listener}.gssapi.sasl.jaas.config": keytab_entry(keytab, "kafka/localhost"),
        "sasl.kerberos.service.name": "kafka",
    }


def client_settings(port: int, entry: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": entry,
    }
