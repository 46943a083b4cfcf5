"""Which partition a key belongs to, by the rule of Kafka's Java clients."""

from __future__ import annotations

__all__ = ["murmur2", "partition_of"]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash that Kafka's producers use.

    >>> hex(murmur2(b"21"))
    '0xc5f2f8ec'
    """
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    if length & 3:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
