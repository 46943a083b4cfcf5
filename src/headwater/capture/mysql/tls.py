"""Encrypted connections: what an address asks for, as PyMySQL wants it, and what a refused certificate means."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headwater.capture.source import CaptureError

__all__ = ["TLS", "switch"]

_WRONG_NAME = (62, 64)
"""OpenSSL's numbers for a certificate of another host, or of another IP address."""


@dataclass(frozen=True)
class TLS:
    """How connections are encrypted, and whom the server has to be.

    >>> TLS.parse({"ca": "/etc/ca.pem"})
    TLS(wanted=True, ca='/etc/ca.pem', cert=None, key=None, checks_name=True)
    """

    PARAMETERS: ClassVar = ("tls", "ca", "verify", "cert", "key")

    wanted: bool | None = None
    """None for encryption where the server offers it, as MySQL's own programs do."""
    ca: str | None = None
    """Who must have signed the server's certificate; without it, the certificate is not looked at."""
    cert: str | None = None
    key: str | None = None
    checks_name: bool = True
    """Whether the certificate has to be for the host of the address, too."""

    @classmethod
    def parse(cls, found: Mapping[str, str]) -> Self:
        """Return what the parameters of an address say."""
        wanted = switch("tls", found["tls"]) if "tls" in found else None
        files = {name: found[name] for name in ("ca", "cert", "key") if name in found}
        for name, file in files.items():
            if not file:
                raise CaptureError(f"{name}= names no file: write {name}=FILE, or leave it out")
            if wanted is False:
                raise CaptureError(f"tls=off and {name}={file} contradict each other: leave one of them out")
        if "key" in files and "cert" not in files:
            raise CaptureError("key= belongs to a certificate: write cert=FILE, too")
        verify = found.get("verify", "full")
        if verify not in ("full", "ca"):
            raise CaptureError(
                f"verify={verify} is neither full, which checks the certificate's signature and name, nor ca, which"
                " checks the signature"
            )
        if "verify" in found and "ca" not in files:
            raise CaptureError(f"verify={verify} needs to know who signs certificates: write ca=FILE, too")
        return cls(True if files else wanted, **files, checks_name=verify == "full")

    def connecting(self) -> dict[str, Any]:
        """Return what PyMySQL is to be told; the files are read anew for each connection."""
        if self.wanted is None:
            return {}
        return {"ssl": self._context()} if self.wanted else {"ssl_disabled": True}

    def distrust(self, server: str, error: ssl.SSLCertVerificationError) -> CaptureError:
        """Return the sentence for a certificate that was refused."""
        if error.verify_code in _WRONG_NAME:
            return CaptureError(
                f"{server} shows a certificate for another name ({error.verify_message}): write the host as the"
                " certificate has it, or verify=ca to have only its signature checked"
            )
        return CaptureError(
            f"{server} shows a certificate that {self.ca} does not vouch for ({error.verify_message}): give ca= the"
            " certificate of whoever signed the server's; if it is the right one, somebody else may be answering"
        )

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which trusts nobody unless told
        context.check_hostname = self.ca is not None and self.checks_name
        if self.ca is None:
            context.verify_mode = ssl.CERT_NONE
        else:
            with _usable(f"ca={self.ca}", "the PEM file of whoever signed the server's certificate"):
                context.load_verify_locations(self.ca)
        if self.cert is not None:
            files = f"cert={self.cert}" + (f" with key={self.key}" if self.key else "")
            with _usable(files, "the PEM files of a certificate and of its key"):
                # Nobody could answer the question for the password of an encrypted key.
                context.load_cert_chain(self.cert, self.key, password="")
        return context


@contextmanager
def _usable(files: str, wanted: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # as ssl.SSLError is
        raise CaptureError(f"{files} cannot be used ({error.strerror or error}): give {wanted}") from error


def switch(name: str, text: str) -> bool:
    """Return whether a parameter says yes."""
    if text not in ("on", "off", "true", "false"):
        raise CaptureError(f"{name}={text} is neither on nor off")
    return text in ("on", "true")
