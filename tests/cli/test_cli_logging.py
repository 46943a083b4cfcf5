"""The log, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headwater.cli.logging import set_up_logging

_log = logging.getLogger("headwater.tests")


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def _fail() -> None:
    try:
        raise ValueError("of no use")
    except ValueError:
        _log.exception("that went wrong", extra={"partition": "orders-0"})


def test_text() -> None:
    stream = io.StringIO()
    set_up_logging(style="text", level="info", stream=stream)
    _log.debug("unseen")
    _log.warning("cut %d bytes", 118, extra={"partition": "orders-0"})
    (line,) = stream.getvalue().splitlines()
    when, _, rest = line.partition(" ")
    assert datetime.strptime(when, "%H:%M:%S.%f")
    assert rest == "WARNING cut 118 bytes partition=orders-0"


def test_text_says_nothing_twice() -> None:
    stream = io.StringIO()
    set_up_logging(style="text", level="info", stream=stream)
    _log.warning(
        "closed %s: %s",
        "10.0.0.1",
        "garbage",
        extra={"peer": "10.0.0.1", "reason": "garbage", "suppressed": 1},
    )
    assert stream.getvalue().endswith("closed 10.0.0.1: garbage suppressed=1\n")


def test_text_has_the_traceback_below() -> None:
    stream = io.StringIO()
    set_up_logging(style="text", level="info", stream=stream)
    _fail()
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("ERROR   that went wrong partition=orders-0")
    assert lines[-1] == "ValueError: of no use"


def test_json_is_one_object_a_line() -> None:
    stream = io.StringIO()
    set_up_logging(style="json", level="debug", stream=stream)
    _log.info("two\nlines", extra={"offset": 7, "level": "mine", "where": object})
    _fail()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    when = datetime.fromisoformat(first.pop("time"))
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=1)
    assert first == {
        "level": "info",
        "logger": "headwater.tests",
        "message": "two\nlines",
        "offset": 7,
        "where": "<class 'object'>",
    }
    assert second["exception"].endswith("ValueError: of no use")
    assert second["partition"] == "orders-0"
