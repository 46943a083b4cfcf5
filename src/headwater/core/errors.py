"""The root of every error Headwater raises on purpose.

    HeadwaterError              says what is wrong, and what to do about it
    ├── SettingError            a setting, option or address that does not parse or fit
    ├── ApiError                a request that is refused with one of Kafka's error codes
    └── (one tree per package)  record.batch.CorruptBatch, log.errors.LogError, …

Kafka's codes themselves, and which of them a client may retry, are `kio.schema.errors.ErrorCode`.
"""

from __future__ import annotations

from headwater.core.absent import absent

# kio loads Hypothesis wherever that is installed: two tenths of a second in each process, none of which needs it.
with absent("hypothesis"):
    from kio.schema.errors import ErrorCode

__all__ = ["ApiError", "ErrorCode", "HeadwaterError", "SettingError"]


class HeadwaterError(Exception):
    """An error whose text names the thing that is wrong and the way out."""


class SettingError(HeadwaterError):
    """A setting, option or address that does not parse, or does not fit."""


class ApiError(HeadwaterError):
    """A request refused with an error code that every Kafka client knows."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or (code.__doc__ or code.name))
        self.code = code
        self.message = message
