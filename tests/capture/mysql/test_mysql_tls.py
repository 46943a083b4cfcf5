"""What the address of a MySQL may say about encryption, and what it may not."""

from __future__ import annotations

import doctest
import ssl
from pathlib import Path

import pytest

from headwater.capture.mysql import tls
from headwater.capture.mysql.config import Config
from headwater.capture.source import CaptureError


def parsed(query: str) -> tls.TLS:
    return Config.parse(f"mysql://db/shop?{query}", ["users"]).tls


def test_the_example_in_the_code_runs() -> None:
    assert doctest.testmod(tls) == (0, 1)


def test_encryption_is_wanted_where_something_says_so() -> None:
    assert parsed("").connecting() == {}  # where the server offers it
    assert parsed("tls=off").connecting() == {"ssl_disabled": True}
    context = parsed("tls=true").connecting()["ssl"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert parsed("cert=a.pem").wanted
    assert parsed("ca=a.pem").checks_name
    assert not parsed("ca=a.pem&verify=ca").checks_name


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("tls=maybe", "tls=maybe is neither on nor off"),
        ("tls=off&ca=a.pem", "tls=off and ca=a.pem contradict each other"),
        ("key=a.key", "write cert=FILE, too"),
        ("ca=", "ca= names no file"),
        ("verify=ca", "write ca=FILE, too"),
        ("ca=a.pem&verify=none", "verify=none is neither full"),
        ("ssl_ca=a.pem", "no parameter 'ssl_ca': it takes server_id, gtid, tls, ca, verify, cert, key"),
    ],
)
def test_what_does_not_fit_is_named(query: str, told: str) -> None:
    with pytest.raises(CaptureError, match=told):
        parsed(query)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(
        CaptureError, match=r"none\.pem cannot be used \(No such file or directory\): give the PEM"
    ):
        parsed(f"ca={tmp_path}/none.pem").connecting()
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(CaptureError, match=r"ca=.*empty\.pem cannot be used"):
        parsed(f"ca={tmp_path}/empty.pem").connecting()
    with pytest.raises(CaptureError, match=r"cert=.*empty\.pem with key=.*empty\.pem cannot be used"):
        parsed(f"cert={tmp_path}/empty.pem&key={tmp_path}/empty.pem").connecting()
