"""Dates and times as the binary log stores them.

MySQL's internals manual has their forms under "Date and time data type representation". Each reader takes the rows and
where a value begins, and returns its JSON and where the next one begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = [
    "date",
    "datetime",
    "old_datetime",
    "old_time",
    "old_timestamp",
    "time_of_day",
    "timestamp",
    "year",
]

Reader = Callable[[bytes, int], tuple[bytes, int]]


def _fraction(digits: int) -> tuple[int, Callable[[int], bytes]]:
    """Return how many bytes hold so many digits of a second, and what prints them."""
    size = (digits + 1) // 2
    if not digits:
        return 0, lambda _: b""
    drop = 10 if digits % 2 else 1
    return size, lambda value: b".%0*d" % (digits, value // drop)


def timestamp(digits: int) -> Reader:
    """Seconds since 1970, four bytes, then the fraction; zero is the zero date."""
    size, fraction = _fraction(digits)

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + 4 + size
        seconds = int.from_bytes(data[at : at + 4], "big")
        behind = fraction(int.from_bytes(data[at + 4 : end], "big"))
        return _utc(seconds, behind), end

    return read


def _utc(seconds: int, behind: bytes) -> bytes:
    if not seconds:
        return b'"0000-00-00T00:00:00%bZ"' % behind
    return b'"%04d-%02d-%02dT%02d:%02d:%02d%bZ"' % (*time.gmtime(seconds)[:6], behind)


def datetime(digits: int) -> Reader:
    """Forty bits of a calendar, then the fraction."""
    size, fraction = _fraction(digits)

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + 5 + size
        value = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        year, month = divmod(value >> 22, 13)
        behind = fraction(int.from_bytes(data[at + 5 : end], "big"))
        numbers = (year, month, value >> 17 & 31, value >> 12 & 31, value >> 6 & 63, value & 63)
        return b'"%04d-%02d-%02dT%02d:%02d:%02d%b"' % (*numbers, behind), end

    return read


def time_of_day(digits: int) -> Reader:
    """Three bytes of hours, minutes and seconds with a sign, and the fraction, as one number."""
    size, fraction = _fraction(digits)
    zero = 0x800000 << (8 * size)
    mask = (1 << (8 * size)) - 1

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + 3 + size
        value = int.from_bytes(data[at:end], "big") - zero
        sign = b"-" if value < 0 else b""
        value = abs(value)
        whole, behind = value >> (8 * size), fraction(value & mask)
        return b'"%b%02d:%02d:%02d%b"' % (sign, whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63, behind), end

    return read


def old_datetime(data: bytes, at: int) -> tuple[bytes, int]:
    """Eight bytes: the decimal number YYYYMMDDhhmmss."""
    text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
    day = f"{text[:4]}-{text[4:6]}-{text[6:8]}"
    return f'"{day}T{text[8:10]}:{text[10:12]}:{text[12:]}"'.encode(), at + 8


def old_time(data: bytes, at: int) -> tuple[bytes, int]:
    """Three bytes: the decimal number hhmmss."""
    value = int.from_bytes(data[at : at + 3], "little", signed=True)
    hours, rest = divmod(abs(value), 10000)
    return b'"%b%02d:%02d:%02d"' % (b"-" if value < 0 else b"", hours, *divmod(rest, 100)), at + 3


def old_timestamp(data: bytes, at: int) -> tuple[bytes, int]:
    """Four bytes: seconds since 1970."""
    return _utc(int.from_bytes(data[at : at + 4], "little"), b""), at + 4


def date(data: bytes, at: int) -> tuple[bytes, int]:
    """Three bytes."""
    value = int.from_bytes(data[at : at + 3], "little")
    return b'"%04d-%02d-%02d"' % (value >> 9, value >> 5 & 15, value & 31), at + 3


def year(data: bytes, at: int) -> tuple[bytes, int]:
    """One byte from 1900 on; zero is the year 0000."""
    return b"%d" % (data[at] + 1900 if data[at] else 0), at + 1
