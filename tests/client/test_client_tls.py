"""The files that an address names for TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.amqp.transport import Transport
from headwater.client.cluster import Cluster
from headwater.client.errors import ClientError
from headwater.core.urls import AmqpUrl, KafkaUrl


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(ClientError, match=f"cannot use ca={missing}: No such file or directory"):
        Cluster(KafkaUrl.parse(f"kafka://127.0.0.1:1?ca={missing}")).partitions("orders")
    with pytest.raises(ClientError, match=f"cannot use ca={missing}: No such file or directory"):
        Transport(AmqpUrl.parse(f"amqps://127.0.0.1:1?ca={missing}"))


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "me.pem"
    wrong.write_text("hello")
    with pytest.raises(ClientError, match=f"cannot use cert={wrong}&key={wrong}: "):
        Transport(AmqpUrl.parse(f"amqps://127.0.0.1:1?cert={wrong}&key={wrong}"))
