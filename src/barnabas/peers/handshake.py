"""The first request on a connection asks for the versions of the broker's APIs.

Clients do so on every connection; brokers on those connections on which no setting settles the versions.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from barnabas import __version__
from barnabas.errors import NONE, KafkaError, UnsupportedVersion, error_for_code
from barnabas.net.requester import Requester
from barnabas.peers.node import Node
from barnabas.protocol.apis import Api, api_for_name
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.api_versions_response import ApiVersionsResponse

SOFTWARE_NAME: Final = "barnabas"
API_VERSIONS: Final = api_for_name("ApiVersions")
API_VERSIONS_VERSION: Final = 3


class VersionRange(NamedTuple):
    """Versions of an API that both sides know, both inclusive."""

    first: int
    last: int


class Features(NamedTuple):
    """The finalized features of the cluster: their levels by name, such as transaction.version."""

    epoch: int
    levels: dict[str, int]


class Link:
    """An open connection whose broker has reported its API versions."""

    __slots__ = ("features", "node", "requester", "versions")

    def __init__(self, node: Node, requester: Requester, answer: ApiVersionsResponse) -> None:
        self.node = node
        self.requester = requester
        self.versions: dict[int, VersionRange] = {
            each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys
        }
        self.features = Features(
            answer.finalized_features_epoch,
            {each.name: each.max_version_level for each in answer.finalized_features},
        )

    def version_of(self, api: Api, max_version: int | None = None) -> int:
        """The highest version that both know; UnsupportedVersion if there is none."""
        theirs = self.versions.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"the broker at {self.node} does not offer {api.name}")
        last = api.last_version if max_version is None else min(api.last_version, max_version)
        version = min(last, theirs.last)
        if version < max(api.first_version, theirs.first):
            raise UnsupportedVersion(
                f"the broker at {self.node} offers {api.name} {theirs.first}-{theirs.last}, and"
                f" {api.first_version}-{last} is needed"
            )
        return version


async def shake_hands(node: Node, requester: Requester, *, timeout_s: float) -> Link:
    """Asks a broker for its versions. Closes the connection and raises KafkaError if it does not report them."""
    try:
        answer = await _ask_versions(requester, API_VERSIONS_VERSION, timeout_s)
        if answer.error_code == UnsupportedVersion.code:
            answer = await _ask_versions(requester, 0, timeout_s)
        if answer.error_code != NONE:
            raise error_for_code(answer.error_code, f"{node} does not report its versions")
    except BaseException:
        requester.close()
        raise
    return Link(node, requester, answer)


async def answer_to(
    requester: Requester,
    api: Api,
    version: int,
    request: Message,
    *,
    timeout_s: float,
    is_ahead: bool = False,
) -> Any:
    """The answer to a request. Raises NetworkException or RequestTimedOut; the connection has ended then.

    A request that is ahead does not wait for the end of `Requester.hold`.
    """
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(message: Any, error: KafkaError | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(message)
        else:
            answer.set_exception(error)

    requester.send(api, version, request, done, timeout_s=timeout_s, is_ahead=is_ahead)
    try:
        return await answer
    except KafkaError as error:
        # The same exception may end several requests, and each has its own way up the stack.
        raise error.with_traceback(None) from None


async def _ask_versions(requester: Requester, version: int, timeout_s: float) -> ApiVersionsResponse:
    request = (
        ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        if version >= 3
        else ApiVersionsRequest()
    )
    answer: ApiVersionsResponse = await answer_to(
        requester, API_VERSIONS, version, request, timeout_s=timeout_s
    )
    return answer
