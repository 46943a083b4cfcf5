"""Errors whose text is put together."""

from __future__ import annotations

import doctest
import errno
import socket

import pytest

from headwater.core import errors as module
from headwater.core.errors import CannotListen


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            # As uvloop says it.
            OSError(
                errno.EADDRINUSE, "error while attempting to bind on address ('a', 1): address already in use"
            ),
            "cannot listen on a:1 for X (Address already in use): stop what does, or give another",
        ),
        (
            OSError(errno.EACCES, "Permission denied"),
            "cannot listen on a:1 for X (Permission denied): give another",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "cannot listen on a:1 for X (Name or service not known): give another",
        ),
    ],
)
def test_an_address_that_cannot_be_listened_on(error: OSError, said: str) -> None:
    assert str(CannotListen("a", 1, "X", error, "another")) == said


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0
