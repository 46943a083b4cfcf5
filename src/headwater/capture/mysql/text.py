"""Text of any character set as JSON."""

from __future__ import annotations

import re
from codecs import charmap_decode
from collections.abc import Callable
from json.encoder import encode_basestring

from headwater.capture.source import CaptureError

__all__ = ["Texts", "quote_utf8"]

_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_ASCII = "".join(map(chr, range(128)))
_UNICODE = ("utf8", "utf8mb3", "utf8mb4", "ascii")
_CODECS = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
}
"""Python's names for the character sets with more than one byte for a character; those of one byte are asked for."""


def quote_utf8(raw: bytes) -> bytes:
    """Return the JSON string of a text in UTF-8."""
    if _SPECIAL.search(raw) is None:
        return b'"%b"' % raw
    return encode_basestring(raw.decode(errors="replace")).encode()


class Texts:
    """Makes JSON of text in the character sets of a server.

    What the 256 bytes of a set with one byte for a character mean is asked of the server, for it does not always agree
    with Python: MySQL's latin1 is a cp1252 without gaps. `ask` takes a set's name, and returns its characters, or None
    where it has more than 256.
    """

    def __init__(self, ask: Callable[[str], str | None]) -> None:
        self._ask = ask
        self._known: dict[str, Callable[[bytes], bytes]] = {}

    def quoting(self, charset: str | None) -> Callable[[bytes], bytes]:
        """Return what makes a JSON string of the bytes of a text."""
        if charset is None or charset in _UNICODE:
            return quote_utf8
        found = self._known.get(charset)
        if found is None:
            found = self._known[charset] = self._made(charset)
        return found

    def _made(self, charset: str) -> Callable[[bytes], bytes]:
        if codec := _CODECS.get(charset):
            return lambda raw: encode_basestring(raw.decode(codec, "replace")).encode()
        characters = self._ask(charset)
        if characters is None:
            raise CaptureError(
                f"text in the character set {charset} cannot be read: convert the column to utf8mb4"
            )

        extends_ascii = characters[:128] == _ASCII

        def quote(raw: bytes) -> bytes:
            if extends_ascii and raw.isascii():
                return quote_utf8(raw)
            return encode_basestring(charmap_decode(raw, "replace", characters)[0]).encode()

        return quote
