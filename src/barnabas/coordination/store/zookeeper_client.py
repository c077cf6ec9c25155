"""What stands between a ZooKeeper session and kazoo: settings, the queue to the event loop, operations and errors."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionClosedError,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from barnabas.coordination.store.contract import (
    AccessDenied,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
    validate_data,
    validate_path,
)
from barnabas.errors import InvalidConfig

if TYPE_CHECKING:
    from barnabas.security.tls import TlsSettings

READS_AT_ONCE: Final = 1_000
RECONNECT_DELAY_S: Final = 0.1
RECONNECT_DELAY_MAX_S: Final = 1.0

_ERRORS: Final[dict[type[Exception], type[StoreError]]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    BadArgumentsError: BadArguments,
    InvalidACLError: BadArguments,
    SessionExpiredError: SessionExpired,
    ConnectionClosedError: SessionExpired,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files. Without a certificate the client does not identify itself."""

    ca: str | None = None
    # One file has the private key and the certificates.
    certificate: str | None = None
    key_password: str | None = None
    check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """`connect` is Kafka's `zookeeper.connect`: host:port,host:port/chroot."""

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    # Whether new nodes are the brokers' own to change.
    set_acl: bool = False
    # So many reads of `get_all` are under way at once.
    max_in_flight_requests: int = READS_AT_ONCE
    # user:password of the digest scheme.
    digest: str | None = None
    tls: TlsFiles | None = None

    @property
    def hosts(self) -> str:
        return self.connect.partition("/")[0]

    @property
    def chroot(self) -> str:
        """Empty, or a path without a slash at its end."""
        return self.connect[len(self.hosts) :].rstrip("/")


class LoopQueue:
    """What kazoo takes for a queue of calls: they run on the event loop, in order, many at a wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._is_scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        with self._lock:
            self._calls.append(call)
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            # The loop is closed: its owner has left without closing the session.
            self._calls.clear()

    def _run(self) -> None:
        with self._lock:
            self._is_scheduled = False
            calls = list(self._calls)
            self._calls.clear()
        for call in calls:
            try:
                call()
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "a callback of the ZooKeeper session failed", "exception": error}
                )


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs completions and watches on the event loop, in the order in which the connection received them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: TlsFiles | None) -> None:
        super().__init__()
        self._tls = tls
        self.callback_queue = self.completion_queue = LoopQueue(loop)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_connection(
        self, address: tuple[str, int], *, hostname: str, timeout: float, **_: Any
    ) -> socket.socket:
        """With TLS as for all other connections. kazoo would trust the authorities of the system too."""
        context = None
        if self._tls is not None:
            from barnabas.security.tls import client_context

            try:
                # New files count for new connections.
                context = client_context(_tls_settings(self._tls))
            except InvalidConfig as error:
                raise OSError(errno.EINVAL, str(error)) from error
        connected: socket.socket = super().create_connection(address, hostname, timeout)
        return connected if context is None else context.wrap_socket(connected, server_hostname=hostname)


def _tls_settings(files: TlsFiles) -> TlsSettings:
    from barnabas.security.key_stores import StoreSettings
    from barnabas.security.tls import TlsSettings

    key_password = files.key_password
    return TlsSettings(
        key_store=StoreSettings(
            "zookeeper.ssl.keystore.", files.certificate, "PEM", None, key_password=key_password
        ),
        trust_store=StoreSettings("zookeeper.ssl.truststore.", files.ca, "PEM", None),
        client_auth="none",
        enabled_protocols=(),
        cipher_suites=(),
        checks_hostname=files.check_hostname,
    )


def new_client(settings: ZooKeeperSettings, chroot: str, handler: LoopHandler) -> KazooClient:
    return KazooClient(
        hosts=settings.hosts + chroot,
        timeout=settings.session_timeout_ms / 1_000,
        handler=handler,
        auth_data=[] if settings.digest is None else [("digest", settings.digest)],
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=RECONNECT_DELAY_S,
            max_delay=RECONNECT_DELAY_MAX_S,
            sleep_func=handler.sleep_func,
        ),
        logger=_quiet_logger(),
        use_ssl=settings.tls is not None,
    )


class _ConnectionProblems(logging.Filter):
    """Keeps the last warning of kazoo. A line for each attempt to connect says no more than the session's own lines."""

    last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno == logging.WARNING:
            self.last = record.getMessage().removeprefix("Connection dropped: ")
        return record.levelno > logging.WARNING


_problems: Final = _ConnectionProblems()


def last_connection_problem() -> str:
    """Why kazoo could not connect when it tried last; empty if it did not say."""
    return _problems.last


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("kazoo")
    logger.addFilter(_problems)
    return logger


def validate_operation(operation: Operation) -> None:
    validate_path(operation.path)
    if isinstance(operation, Create | SetData):
        validate_data(operation.path, operation.data)


def add_operation(
    transaction: TransactionRequest, operation: Operation, acl: Callable[[str], list[Any]]
) -> None:
    match operation:
        case Create(path, data, mode):
            transaction.create(
                path, data, acl=acl(path), ephemeral=mode.is_ephemeral, sequence=mode.is_sequential
            )
        case SetData(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def raise_refusal(operations: Sequence[Operation], results: Iterable[object]) -> None:
    """The operation that was refused has its own error; the others say that they were rolled back."""
    for index, (operation, result) in enumerate(zip(operations, results, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            raise MultiFailed(index, refusal(result, operation.path)) from result


def refusal(error: Exception, path: str) -> StoreError:
    ours = _ERRORS.get(type(error))
    if ours is not None:
        return ours(path)
    if isinstance(error, NoAuthError):
        return AccessDenied(
            f"ZooKeeper does not let this broker use {path}: check its credentials and the ACL"
        )
    return StoreError(f"ZooKeeper refused an operation on {path}: {type(error).__name__} {error}")


def result_of(result: Any) -> OperationResult:
    if isinstance(result, str):
        return result
    return None if isinstance(result, bool) else stat_of(result)


def stat_of(found: Any) -> Stat:
    return Stat(
        czxid=found.czxid,
        mzxid=found.mzxid,
        pzxid=found.pzxid,
        ctime_ms=found.ctime,
        mtime_ms=found.mtime,
        version=found.version,
        cversion=found.cversion,
        aversion=found.aversion,
        ephemeral_owner=found.ephemeralOwner,
        data_length=found.dataLength,
        num_children=found.numChildren,
    )
