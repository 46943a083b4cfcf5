"""The settings of access: who is let in, how long that may take, and how many may be waiting for it."""

from __future__ import annotations

from typing import Final

from headwater.broker.access.plain import PLAIN
from headwater.broker.access.scram import ScramMechanism
from headwater.core.settings import Kind, Setting, between, one_of

__all__ = ["ACCESS_SETTINGS"]

_MECHANISMS: Final = (PLAIN, *(mechanism.sasl_name for mechanism in ScramMechanism))

ACCESS_SETTINGS: Final = (
    Setting(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        100,
        "How long a client that failed to authenticate waits for the answer and the end of its connection.",
        between(0),
    ),
    Setting(
        "headwater.authentication.timeout.ms",
        Kind.INT,
        10_000,
        "How long a connection has for its TLS handshake, and until it is authenticated.",
        between(1),
    ),
    Setting(
        "headwater.max.unauthenticated.connections",
        Kind.INT,
        1000,
        "The most connections that are in their TLS handshake or not yet authenticated; more are refused.",
        between(1),
    ),
    Setting(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        _MECHANISMS,
        "The SASL mechanisms that clients may use with `--auth sasl`; PLAIN only over TLS, unless allowed.",
        one_of(*_MECHANISMS),
    ),
    Setting(
        "sasl.server.max.receive.size",
        Kind.INT,
        65_536,
        "The largest request that is read from a client that is not authenticated.",
        between(1024),
    ),
)
