"""What a client needs to speak TLS, made of the files that an address names."""

from __future__ import annotations

import ssl

from headwater.client.errors import ClientError

__all__ = ["tls_context"]


def tls_context(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    """Return a context that checks the broker's certificate, and shows one of our own where it is given."""
    files = f"ca={ca}"
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            files = f"cert={cert}" if key is None else f"cert={cert}&key={key}"
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise ClientError(f"cannot use {files}: {error.strerror or error}") from error
    return context
