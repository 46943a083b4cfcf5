"""Where a message may be sent: to public addresses, unless the operator allows others.

Whoever writes an application, or controls the DNS of a name in it, is not to make this server send requests into
the network it stands in: to a cloud's metadata at 169.254.169.254, to a database at 10.0.0.5, to itself. A name is
resolved once, what it resolves to is checked, and the connection goes to the address that was checked: a name that
resolves to something else a moment later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from headwater.core.errors import HeadwaterError

__all__ = ["PrivateAddress", "Resolver", "addresses_of", "is_public", "resolve"]

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host."""

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: an IPv4 address behind NAT64


class PrivateAddress(HeadwaterError):
    """A host that has none but private addresses."""


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]


async def addresses_of(
    host: str, port: int, *, allow_private: bool, resolver: Resolver = resolve
) -> list[str]:
    """Return the addresses of a host that may be connected to, or raise `PrivateAddress`."""
    found = list(dict.fromkeys(await resolver(host, port)))
    if allow_private:
        return found
    public = [address for address in found if is_public(address)]
    if found and not public:
        raise PrivateAddress(
            f"{host} is at {found[0]}, which is no public address: start with --allow-private-webhooks "
            "to send there"
        )
    return public


def is_public(text: str) -> bool:
    """Tell whether an address is one of the public internet's.

    >>> is_public("93.184.216.34"), is_public("169.254.169.254"), is_public("::ffff:10.0.0.5")
    (True, False, False)
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and not address.is_reserved
    # An IPv6 address may stand for an IPv4 address, which is then where the packets go.
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    if inner is None and address in _TRANSLATED:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if inner is not None:
        return is_public(str(inner))
    return address in _GLOBAL_UNICAST and address.is_global
