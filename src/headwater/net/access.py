"""Who a listener lets in: what the command line says of it, checked before anything listens."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from headwater.broker.access.plain import PLAIN
from headwater.core.errors import SettingError
from headwater.core.settings import Value

__all__ = ["AccessOptions", "is_loopback"]


@dataclass(frozen=True)
class AccessOptions:
    """How connections are encrypted and authenticated."""

    sasl: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    plain_without_tls: bool = False
    insecure_listen: bool = False

    @property
    def encrypted(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.tls_cert is not None

    @property
    def authenticated(self) -> bool:
        """Whether every client has to prove who it is."""
        return self.sasl or self.tls_client_ca is not None

    def check(self, host: str) -> None:
        """Refuse options that do not go together, and a listener that lets everybody in from everywhere."""
        if self.tls_cert is None and (self.tls_key or self.tls_client_ca):
            raise SettingError("--tls-key and --tls-client-ca need --tls-cert, the certificate of the broker")
        if not (self.authenticated or self.insecure_listen or is_loopback(host)):
            raise SettingError(
                f"{host} can be reached from other machines and nobody has to authenticate: "
                "add --auth sasl or --tls-client-ca, or --insecure-listen if that is what you want"
            )

    def mechanisms(self, enabled: Value) -> tuple[str, ...]:
        """Return the SASL mechanisms to offer, of those enabled; a password in clear text needs TLS."""
        assert isinstance(enabled, tuple), "the setting is a list"
        unsafe = not (self.encrypted or self.plain_without_tls)
        offered = tuple(name for name in enabled if not (name == PLAIN and unsafe))
        if self.sasl and not offered:
            raise SettingError(
                "sasl.enabled.mechanisms leaves nothing to authenticate with: PLAIN needs TLS (--tls-cert), "
                "or --allow-plain-without-tls"
            )
        return offered


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address, or every address that a name stands for.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        # Listening on it fails next, and says so better.
        return True
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)
