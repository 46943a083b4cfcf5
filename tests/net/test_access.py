"""What a listener may be told about access, and what it refuses."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headwater.core.errors import SettingError
from headwater.net.access import AccessOptions, is_loopback
from headwater.net.tls import ServerTls, describe_failure, distinguished_name

FILE = Path("file.pem")
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)
    AccessOptions().check(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
def test_beyond_this_machine_needs_authentication(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingError, match="--insecure-listen"):
        AccessOptions().check(host)
    with pytest.raises(SettingError, match="nobody has to authenticate"):
        AccessOptions(tls_cert=FILE).check(host)
    AccessOptions(sasl=True).check(host)
    AccessOptions(tls_cert=FILE, tls_client_ca=FILE).check(host)
    AccessOptions(insecure_listen=True).check(host)


@pytest.mark.parametrize("options", [AccessOptions(tls_key=FILE), AccessOptions(tls_client_ca=FILE)])
def test_tls_needs_a_certificate(options: AccessOptions) -> None:
    with pytest.raises(SettingError, match="--tls-cert"):
        options.check("127.0.0.1")


def test_plain_needs_tls_or_permission() -> None:
    assert AccessOptions(sasl=True).mechanisms(ALL) == ALL[1:]
    assert AccessOptions(sasl=True, tls_cert=FILE).mechanisms(ALL) == ALL
    assert AccessOptions(sasl=True, plain_without_tls=True).mechanisms(ALL) == ALL
    with pytest.raises(SettingError, match="--allow-plain-without-tls"):
        AccessOptions(sasl=True).mechanisms(("PLAIN",))


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    with pytest.raises(SettingError, match=r"bad\.pem: it is not PEM, or its key is missing"):
        ServerTls(bad, None, None)
    with pytest.raises(SettingError, match="No such file"):
        ServerTls(tmp_path / "missing.pem", None, None)


def test_a_certificate_names_its_owner_as_in_kafka() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "Acme, Inc."),),
        (("commonName", "alice"), ("userId", "7")),
    )
    assert distinguished_name({"subject": subject}) == r"CN=alice+UID=7,O=Acme\, Inc.,C=DE"
    assert distinguished_name({}) == ""


def _failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (_failure("WRONG_VERSION_NUMBER"), "does not speak TLS"),
        (_failure("HTTP_REQUEST"), "does not speak TLS"),
        (_failure("PEER_DID_NOT_RETURN_A_CERTIFICATE"), "showed no certificate"),
        (_failure("NO_SHARED_CIPHER"), "the TLS handshake failed: no shared cipher"),
        (ConnectionAbortedError(), "took too long"),
        (ConnectionResetError(), "went away"),
    ],
)
def test_why_a_handshake_failed(error: OSError, sentence: str) -> None:
    assert sentence in describe_failure(error)
