"""Certificates for a test, made with the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, two PEM files."""

    cert: Path
    key: Path


class Authority:
    """Somebody who signs certificates."""

    def __init__(self, openssl: str, directory: Path, name: str) -> None:
        self._openssl = openssl
        self._directory = directory
        self._name = name
        self.cert = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._run(
            f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}",
            "-keyout", self._key, "-out", self.cert,
        )  # fmt: skip

    def issue(self, name: str, *, days: int = 2, names: str = NAMES) -> Certificate:
        """Sign a certificate, for this machine unless told; with no days, it is over as soon as it is there."""
        made = Certificate(
            self._directory / f"{self._name}-{name}.pem", self._directory / f"{self._name}-{name}.key"
        )
        request, extensions = self._directory / "request.pem", self._directory / "extensions"
        extensions.write_text(names)
        self._run(f"req -newkey rsa:2048 -nodes -subj /CN={name}", "-keyout", made.key, "-out", request)
        self._run(
            f"x509 -req -days {days} -CAcreateserial",
            "-in", request, "-CA", self.cert, "-CAkey", self._key, "-out", made.cert, "-extfile", extensions,
        )  # fmt: skip
        return made

    def _run(self, command: str, *rest: str | Path) -> None:
        arguments = [self._openssl, *command.split(), *map(str, rest)]
        subprocess.run(arguments, check=True, capture_output=True, timeout=30)
