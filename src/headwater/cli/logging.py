"""The log on stderr: text for people, or one JSON object a line for machines.

Either way, what a call passes as `extra={...}` is kept: `cut a torn tail partition=orders-0 bytes=118`.
In text, a field whose words the message already says is not said twice.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the call passed beyond the message."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class TextFormatter(logging.Formatter):
    """One line for a person, with the traceback of an exception below it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        when = _when(record).astimezone().strftime("%H:%M:%S.%f")[:-3]
        message = record.getMessage()
        words = [when, f"{record.levelname:<7}", message]
        words += [
            f"{name}={value}"
            for name, value in _extra(record).items()
            if not (isinstance(value, str) and value in message)
        ]
        line = " ".join(words)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object on one line, whatever the message holds."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry: dict[str, Any] = {
            "time": _when(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # A caller's name never hides the time, level, logger or message.
        entry = _extra(record) | entry
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def set_up_logging(*, style: str, level: str, stream: TextIO | None = None) -> None:
    """Send every log record of at least `level` to `stream`, stderr where none is given."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
