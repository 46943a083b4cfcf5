"""The root of every error Headwater raises on purpose.

    HeadwaterError              says what is wrong, and what to do about it
    ├── SettingError            a setting, option or address that does not parse or fit
    ├── CannotListen            an address that the operating system does not let us listen on
    ├── ApiError                a request that is refused with one of Kafka's error codes
    └── (one tree per package)  record.batch.CorruptBatch, log.errors.LogError, …

Kafka's codes themselves, and which of them a client may retry, are `kio.schema.errors.ErrorCode`.
"""

from __future__ import annotations

import errno
import os

from headwater.core.absent import absent

# kio loads Hypothesis wherever that is installed: two tenths of a second in each process, none of which needs it.
with absent("hypothesis"):
    from kio.schema.errors import ErrorCode

__all__ = ["ApiError", "CannotListen", "ErrorCode", "HeadwaterError", "SettingError"]


class HeadwaterError(Exception):
    """An error whose text names the thing that is wrong and the way out."""


class SettingError(HeadwaterError):
    """A setting, option or address that does not parse, or does not fit."""


class CannotListen(HeadwaterError):
    """An address that the operating system does not let us listen on.

    >>> print(CannotListen("::1", 80, "HTTP", OSError(errno.EADDRINUSE, "bind: in use"), "another with --http"))
    cannot listen on [::1]:80 for HTTP (Address already in use): stop what does, or give another with --http
    """

    def __init__(self, host: str, port: int, what: str, error: OSError, instead: str) -> None:
        # uvloop puts a sentence of its own where the system's word is; a name that is not found has no number.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        stop = "stop what does, or " if error.errno == errno.EADDRINUSE else ""
        where = f"[{host}]" if ":" in host else host
        super().__init__(f"cannot listen on {where}:{port} for {what} ({reason}): {stop}give {instead}")


class ApiError(HeadwaterError):
    """A request refused with an error code that every Kafka client knows."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or (code.__doc__ or code.name))
        self.code = code
        self.message = message
