"""Addresses as ACLs have them: in the form in which Java writes them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_HOSTS_MAX: Final = 4_096


@lru_cache(_HOSTS_MAX)
def java_address(host: str) -> str:
    """0:0:0:0:0:0:0:1 for ::1; an IPv4 address, or what is no address, stays as it is."""
    import ipaddress  # Few clients need it, and the import would slow down every start.

    address, percent, scope = host.partition("%")
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in found.exploded.split(":")) + percent + scope
