"""The admin client: topics, settings, groups, transactions and the cluster.

    with barnabas.Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics({"orders": 3})
        admin.describe_groups(["billing"])["billing"].members

`AsyncAdmin` is the client itself, for asyncio; `Admin` runs it on its own thread and waits for it. `admin/core.py`
describes the errors of a call.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from barnabas.client.admin.acls import AclsAdmin
from barnabas.client.admin.cluster import ClusterAdmin
from barnabas.client.admin.configs import ConfigsAdmin
from barnabas.client.admin.groups import GroupsAdmin
from barnabas.client.admin.topics import TopicsAdmin
from barnabas.client.admin.transactions import TransactionsAdmin
from barnabas.client.admin.users import UsersAdmin
from barnabas.client.failures import ClientClosed
from barnabas.client.loop_thread import LoopThread
from barnabas.client.settings import AdminSettings
from barnabas.client.timeouts import timeouts_in_ms
from barnabas.errors import InvalidRequest

P = ParamSpec("P")
R = TypeVar("R")


@timeouts_in_ms
class AsyncAdmin(
    TopicsAdmin, ConfigsAdmin, GroupsAdmin, TransactionsAdmin, ClusterAdmin, UsersAdmin, AclsAdmin
):
    """The admin client for asyncio; use it on the loop on which it was created."""

    def __init__(
        self, settings: Mapping[str, object] | AdminSettings | None = None, /, **keywords: object
    ) -> None:
        super().__init__(
            settings if isinstance(settings, AdminSettings) else AdminSettings(settings, **keywords)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    def call(admin: Admin, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return admin._call(method(admin._client, *arguments, **keywords))

    return functools.update_wrapper(call, method)


@timeouts_in_ms
class Admin:
    """The admin client. It may be used by several threads at once."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        # Wrong settings raise before a thread starts.
        checked = AdminSettings(settings, **keywords)
        self._thread = LoopThread(checked.client_id)

        async def build() -> AsyncAdmin:
            return AsyncAdmin(checked)

        self._client = self._thread.call(build())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Closes the connections and ends the thread; waits for at most `timeout_ms`."""
        if not self._thread.is_closed:
            begin_s = time.monotonic()
            # Another thread may be faster.
            with contextlib.suppress(ClientClosed):
                self._thread.call(self._client.close(timeout_ms=timeout_ms))
            spent_ms = (time.monotonic() - begin_s) * 1000
            self._thread.close(None if timeout_ms is None else max(timeout_ms - spent_ms, 0.0))

    def metrics(self) -> dict[str, float]:
        """Metrics of the connections, by the names of Kafka's own metrics."""
        return self._client.metrics()

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        if self._thread.is_closed:
            work.close()
            raise InvalidRequest("this admin client is closed: make a new one")
        return self._thread.call(work)

    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    delete_records = _blocking(AsyncAdmin.delete_records)
    list_offsets = _blocking(AsyncAdmin.list_offsets)
    list_replica_offsets = _blocking(AsyncAdmin.list_replica_offsets)

    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)
    describe_quotas = _blocking(AsyncAdmin.describe_quotas)
    alter_quotas = _blocking(AsyncAdmin.alter_quotas)

    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_groups = _blocking(AsyncAdmin.describe_groups)
    delete_groups = _blocking(AsyncAdmin.delete_groups)
    list_group_offsets = _blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = _blocking(AsyncAdmin.delete_group_offsets)
    remove_members = _blocking(AsyncAdmin.remove_members)

    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    describe_producers = _blocking(AsyncAdmin.describe_producers)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
    abort_hanging_transaction = _blocking(AsyncAdmin.abort_hanging_transaction)
    fence_producers = _blocking(AsyncAdmin.fence_producers)

    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AsyncAdmin.alter_replica_log_dirs)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_reassignments = _blocking(AsyncAdmin.alter_reassignments)
    list_reassignments = _blocking(AsyncAdmin.list_reassignments)
    describe_features = _blocking(AsyncAdmin.describe_features)
    describe_broker_features = _blocking(AsyncAdmin.describe_broker_features)
    update_features = _blocking(AsyncAdmin.update_features)

    describe_scram_users = _blocking(AsyncAdmin.describe_scram_users)
    set_scram_password = _blocking(AsyncAdmin.set_scram_password)
    delete_scram_password = _blocking(AsyncAdmin.delete_scram_password)

    create_acls = _blocking(AsyncAdmin.create_acls)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)
