"""Certificates in the hands of a real server, which runs for an account of its own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from clients.access.certificates import Authority, Certificate
from headwater.testing.server import RealServer


@dataclass(frozen=True)
class Lent:
    """Files that a server may read."""

    ca: Path
    cert: Path
    key: Path


def lend(server: RealServer, authority: Authority, certificate: Certificate) -> Lent:
    """Copy what a server needs to show a certificate, and to check those of its clients."""
    account = server.as_account()
    copies = []
    for file in (authority.cert, certificate.cert, certificate.key):
        copy = server.data / file.name
        shutil.copy(file, copy)
        copy.chmod(0o600)
        if account:
            shutil.chown(copy, account["user"], account["group"])
        copies.append(copy)
    return Lent(*copies)
