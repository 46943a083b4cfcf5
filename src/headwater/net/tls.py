"""TLS around a connection: the broker's certificate, the handshake, and why one failed."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from headwater.core.errors import SettingError

__all__ = ["ServerTls", "TlsServer", "describe_failure", "distinguished_name"]

logger = logging.getLogger(__name__)

# A client that does not say goodbye is not waited for.
_SHUTDOWN_SECONDS = 1.0
# With no file descriptor left, trying at once would only take the CPU away from those who might close one.
_ACCEPT_AGAIN_SECONDS = 0.1

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED = re.compile(r'[,+"\\<>;]')

_NOT_TLS = {
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "UNEXPECTED_MESSAGE",
    "UNKNOWN_PROTOCOL",
    "WRONG_VERSION_NUMBER",
}


class ServerTls:
    """A certificate and its key, and where clients have to show one, who may have signed theirs."""

    def __init__(self, cert: Path, key: Path | None, client_ca: Path | None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Kafka's clients hold their connections and resume no sessions. One ticket is left: it goes out at the end
        # of the handshake, and acknowledges what a client with Nagle's algorithm would wait 40 ms for.
        context.num_tickets = 1
        try:
            context.load_cert_chain(self._cert, self._key, password=self._refuse_password)
        except (OSError, ValueError) as error:
            files = self._cert if self._key is None else f"{self._cert} with the key in {self._key}"
            raise SettingError(f"cannot use the certificate in {files}: {_reason(error)}") from error
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ValueError) as error:
                raise SettingError(
                    f"cannot use the authority of clients' certificates in {self._client_ca}: {_reason(error)}"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _refuse_password(self) -> str:
        raise SettingError(f"the key in {self._key or self._cert} is encrypted: give one that is not")

    def reload(self) -> None:
        """Read the files again, for the connections to come; keep what was there if they do not do."""
        try:
            self._context = self._load()
        except SettingError as error:
            logger.error("kept the certificate that was there: %s", error)
        else:
            logger.info("read the certificate in %s again", self._cert)

    async def secure(
        self, connected: socket.socket, factory: Callable[[], asyncio.BaseProtocol], seconds: float
    ) -> None:
        """Do the handshake on a connection, and let a protocol have it."""
        await asyncio.get_running_loop().connect_accepted_socket(
            factory,
            connected,
            ssl=self._context,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )


class TlsServer:
    """Listening sockets whose connections become a protocol's once their handshake is done.

    The loop's own servers tell nobody of a connection before that, nor of a handshake that failed; here the
    connections that are still in theirs are counted, and limited by `refuse`, and failures are reported.
    """

    def __init__(
        self,
        tls: ServerTls,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        seconds: float,
        refuse: Callable[[str], str | None],
        report: Callable[[str, str], None],
    ) -> None:
        self._tls = tls
        self._factory = factory
        self._seconds = seconds
        self._refuse = refuse
        self._report = report
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.shaking: Counter[str] = Counter()
        """The connections in their handshake, by the address they come from."""

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Listen, and return the port, which the system chooses when `port` is 0."""
        loop = asyncio.get_running_loop()
        for family, *_, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listening = socket.create_server((address[0], port), family=family, backlog=backlog)
            listening.setblocking(False)
            self._sockets.append(listening)
            # A name may stand for several addresses, which are to have one port.
            port = listening.getsockname()[1]
        for listening in self._sockets:
            self._spawn(self._accept(listening))
        return port

    async def stop(self) -> None:
        """Stop accepting, and end the handshakes under way."""
        for task in self._tasks:
            task.cancel()
        # The loop watches a socket until the task that waits for it has ended.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listening in self._sockets:
            listening.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(listening)
            except OSError as error:
                logger.error("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                continue
            # The loop does this for the connections that it accepts itself.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = str(address[0])
            if reason := self._refuse(peer):
                self._report(peer, reason)
                connected.close()
            else:
                self.shaking[peer] += 1
                self._spawn(self._shake(connected, peer))

    async def _shake(self, connected: socket.socket, peer: str) -> None:
        try:
            await self._tls.secure(connected, self._factory, self._seconds)
        except (OSError, ssl.CertificateError) as error:
            self._report(peer, describe_failure(error))
        finally:
            self.shaking[peer] -= 1
            if not self.shaking[peer]:
                del self.shaking[peer]


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Return the subject of a certificate, as `getpeercert` gives it, in the form that Kafka names users by.

    >>> distinguished_name({"subject": ((("organizationName", "Acme, Inc."),), (("commonName", "alice"),))})
    'CN=alice,O=Acme\\\\, Inc.'
    """
    # The most specific part comes first, and some characters are escaped (RFC 2253, section 2).
    parts = [
        "+".join(f"{_SHORT.get(kind, kind)}={_escape(value)}" for kind, value in part)
        for part in reversed(certificate.get("subject", ()))
    ]
    return ",".join(parts)


def _escape(value: str) -> str:
    return _ESCAPED.sub(r"\\\g<0>", value)


def describe_failure(error: Exception) -> str:
    """Return a sentence on why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate was refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in _NOT_TLS:
            return "the client does not speak TLS and this port does (security.protocol)"
        if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "the client showed no certificate, and --tls-client-ca asks for one"
        return f"the TLS handshake failed: {_reason(error)}"
    if isinstance(error, ConnectionAbortedError):
        return "the TLS handshake took too long (headwater.authentication.timeout.ms)"
    return "the client went away during the TLS handshake"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "").lower().replace("_", " ")
        return words if words and words != "pem lib" else "it is not PEM, or its key is missing (--tls-key)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
