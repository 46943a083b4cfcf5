"""Bytes of an array by position, for compiled code: one load or one memcpy, nothing else.

An index into a numba array may be negative and then counts from the end, which costs a comparison for every
byte and keeps loops from being vectorised: reading JSON takes three times as long. Whoever uses these has
made sure that the positions are inside.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["byte_at", "copy_bytes"]


def _byte_at(_: Any, buffer: Any, position: Any) -> Any:
    """Return the byte at a position."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(array.data, [arguments[1]]))

    return types.uint8(buffer, types.intp), generate


def _copy_bytes(_: Any, to: Any, start: Any, buffer: Any, position: Any, count: Any) -> Any:
    """Copy so many bytes from a position of one array to a position of another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, arguments[0])
        source = context.make_array(signature.args[2])(context, builder, arguments[2])
        memcpy: Any = cgutils.raw_memcpy
        memcpy(
            builder,
            builder.gep(target.data, [arguments[1]]),
            builder.gep(source.data, [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(to, types.intp, buffer, types.intp, types.intp), generate


byte_at: Any = intrinsic(_byte_at)
copy_bytes: Any = intrinsic(_copy_bytes)
