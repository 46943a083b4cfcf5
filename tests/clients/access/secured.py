"""A broker that asks who is there, and how each client is told to answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.brokers import Broker

USER, PASSWORD = "alice", 'wonder=land,"ü'
HEADWATER = str(Path(sys.executable).with_name("headwater"))


@dataclass(frozen=True)
class Secured(Broker):
    """A running broker, and the properties that librdkafka needs to get in."""

    protocol: str
    ca: Path | None = None
    errors: Callable[[], str] = str

    def confluent(
        self, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD, user: str = USER
    ) -> dict[str, Any]:
        """Return librdkafka's properties."""
        properties: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.ca is not None:
            properties["ssl.ca.location"] = str(self.ca)
        if "SASL" in self.protocol:
            properties |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return properties

    def python(self, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> dict[str, Any]:
        """Return the arguments that kafka-python and aiokafka share."""
        arguments: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if "SASL" in self.protocol:
            arguments |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": USER,
                "sasl_plain_password": password,
            }
        return arguments

    def java(self, file: Path, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> Path:
        """Write the properties of Java's clients, and return the file."""
        lines = [f"security.protocol={self.protocol}"]
        if self.ca is not None:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        if "SASL" in self.protocol:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            quoted = quote(password)
            lines += [
                f"sasl.mechanism={mechanism}",
                f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
                f'username="{USER}" password="{quoted}";',
            ]
        file.write_text("\n".join(lines) + "\n")
        return file


def quote(password: str) -> str:
    """Write a password as JAAS, inside a file of Java's properties, wants it."""
    return password.replace('"', '\\\\"').encode("ascii", "backslashreplace").decode().replace("\\x", "\\u00")


def add_user(data: Path, name: str = USER, password: str = PASSWORD) -> None:
    """Add a user to the data of a broker that is not running, as an operator does."""
    subprocess.run(
        [HEADWATER, "users", "add", name, f"--data={data}", "--iterations=4096"],
        input=password + "\n", text=True, check=True, capture_output=True, timeout=20,
    )  # fmt: skip
