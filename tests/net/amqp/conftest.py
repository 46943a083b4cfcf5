"""What tests of the AMQP side share."""

from __future__ import annotations

import pytest

from clients.access.certificates import Authority, Certificate


@pytest.fixture(scope="session")
def authority(openssl: str, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signed the broker's certificate."""
    return Authority(openssl, tmp_path_factory.mktemp("amqp-authority"), "authority")


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Certificate:
    """The broker's certificate."""
    return authority.issue("broker")
