"""Kafka requests that librdkafka has no call for, over a connection of our own.

It is for an administrator's command: one request at a time, a trusted broker, no retries.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from headwater.client.sasl import exchange

if TYPE_CHECKING:
    from headwater.cli.client import Connection

_SECONDS = 15.0
_SASL_HANDSHAKE = (17, 1)
_SASL_AUTHENTICATE = (36, 2)
_MAX_RESPONSE = 256 * 1024 * 1024


class RawClient:
    """One connection to one broker, with the same properties that librdkafka takes."""

    def __init__(self, host: str, port: int, properties: Mapping[str, Any]) -> None:
        self._where = f"{host}:{port}"
        self._correlation = 0
        protocol = str(properties.get("security.protocol", "plaintext")).lower()
        try:
            self._socket = socket.create_connection((host, port), timeout=_SECONDS)
            if protocol in ("ssl", "sasl_ssl"):
                self._socket = _tls(properties).wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise click.ClickException(f"no broker answers at {self._where}: {error}") from error
        self._stream = self._socket.makefile("rb")
        if protocol.startswith("sasl_"):
            self._authenticate(properties)

    def call(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request and return its response, both as kio's entities."""
        from kio.index import load_request_schema, load_response_schema
        from kio.serial import entity_reader, entity_writer

        self._correlation += 1
        request = load_request_schema(api_key, version)
        body = io.BytesIO()
        schema: Any = request.__header_schema__
        header = schema(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._correlation,
            client_id="headwater-cli",
        )
        entity_writer(request.__header_schema__)(body, header)
        entity_writer(request)(body, request(**fields))
        payload = self._exchange(body.getvalue())
        response = load_response_schema(api_key, version)
        data = memoryview(payload)
        answered, size = entity_reader(response.__header_schema__)(data, 0)
        if answered.correlation_id != self._correlation:
            raise click.ClickException(f"{self._where} answered another request than the one it was sent")
        return entity_reader(response)(data, size)[0]

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, payload: bytes) -> bytes:
        try:
            self._socket.sendall(len(payload).to_bytes(4, "big") + payload)
            size = int.from_bytes(self._stream.read(4), "big")
            data = self._stream.read(size) if 0 < size <= _MAX_RESPONSE else b""
        except OSError as error:
            raise click.ClickException(f"{self._where} does not answer: {error}") from error
        if not data or len(data) < size:
            raise click.ClickException(
                f"{self._where} closed the connection: it does not know this request, or needs a "
                "security.protocol of its own"
            )
        return data

    def _authenticate(self, properties: Mapping[str, Any]) -> None:
        mechanism = str(properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI")
        steps = exchange(
            mechanism, str(properties.get("sasl.username", "")), str(properties.get("sasl.password", ""))
        )
        answer = self.call(*_SASL_HANDSHAKE, mechanism=mechanism)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise click.ClickException(f"{self._where} does not take {mechanism}, but {offered}")
        message = next(steps)
        while True:
            answer = self.call(*_SASL_AUTHENTICATE, auth_bytes=message)
            if answer.error_code:
                raise click.ClickException(
                    f"{self._where}: {answer.error_message or 'the password is refused'}"
                )
            try:
                message = steps.send(answer.auth_bytes)
            except StopIteration:
                return


def _tls(properties: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem")
    )
    if str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(properties.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := properties.get("ssl.certificate.location"):
        context.load_cert_chain(
            certificate, properties.get("ssl.key.location"), properties.get("ssl.key.password")
        )
    return context


def accepted(answer: Any) -> Any:
    """Return an answer, or a part of one, that carries no error."""
    if answer.error_code:
        raise click.ClickException(f"the broker refuses: {answer.error_code.name}")
    return answer


def brokers(connection: Connection) -> list[RawClient]:
    """Return a connection to each broker of the cluster."""
    found = connection.admin().list_topics(timeout=_SECONDS).brokers.values()
    return [RawClient(str(broker.host), int(broker.port), connection.properties()) for broker in found]
