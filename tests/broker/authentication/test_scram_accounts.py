"""The users of SCRAM in the metadata, and what stands in for others."""

from __future__ import annotations

from typing import Any, cast

from barnabas.broker.authentication.scram_accounts import ScramAccounts
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.coordination.metadata.scram_credentials import ScramCredential

MECHANISM = "SCRAM-SHA-256"


class Image:
    """As much of an image as is looked at."""

    cluster_id = "cluster"

    def __init__(self, iterations: dict[str, int]) -> None:
        self.scram_credentials = {
            user: {
                MECHANISM: ScramCredential(
                    salt=user.encode(), stored_key=bytes(32), server_key=bytes(32), iterations=count
                )
            }
            for user, count in iterations.items()
        }


def challenge(image: Any, user: str) -> str:
    server = ScramAccounts(MECHANISM, lambda: cast(MetadataImage, image), None).new_server()
    return server.step(f"n,,n={user},r=nonce".encode()).decode().partition(",s=")[2]


def test_users_that_do_not_exist_look_like_one_that_can_log_in() -> None:
    image = Image({"ann": 100, "bob": 8192})
    for user in ("ann", "bob", "nobody"):
        assert challenge(image, user).endswith(",i=8192")
    assert challenge(Image({"ann": 100}), "nobody").endswith(",i=4096")
