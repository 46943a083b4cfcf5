"""What `headwater up` starts, looked at before it is started."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.stack import StackOptions, _broker, check
from headwater.core.errors import HeadwaterError
from headwater.testing.process import free_port


def options(tmp_path: Path, **more: Any) -> StackOptions:
    addresses = {"kafka": ("127.0.0.1", free_port()), "http": ("127.0.0.1", free_port())}
    return StackOptions(app=None, data=tmp_path, **(addresses | more))


def test_the_broker_is_told_where_to_serve_queues(tmp_path: Path) -> None:
    assert "--amqp=127.0.0.1:5673" in _broker(options(tmp_path, amqp=("127.0.0.1", 5673))).command


def test_without_an_address_there_are_no_queues(tmp_path: Path) -> None:
    assert "--amqp=none" in _broker(options(tmp_path)).command


def test_a_taken_port_says_how_to_do_without(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HeadwaterError, match=f"127.0.0.1:{port} cannot be listened on.*--amqp none"):
            check(options(tmp_path, amqp=("127.0.0.1", port)))
