"""The fuzz target over mutations of a valid request of every API and version."""

from __future__ import annotations

import random
import struct

import pytest

from .fuzz_kafka import corpus, fuzz_one

FRAMES = corpus()
MUTATIONS = 40
NASTY = [struct.pack(">i", value) for value in (2**31 - 1, -1, -(2**31), 1 << 24)] + [
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80",
    b"\x7f\xff",
]


def mutated(frame: bytes, rng: random.Random) -> bytes:
    body = bytearray(frame[4:])
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(8, len(body)) if len(body) > 8 else 0
        match rng.randrange(5):
            case 0:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                nasty = rng.choice(NASTY)
                body[at : at + len(nasty)] = nasty
            case 2:
                del body[at : at + rng.randint(1, 8)]
            case 3:
                body[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                body[at:at] = body[at : at + rng.randint(1, 40)]
    return struct.pack(">i", len(body)) + body


def test_the_corpus_is_valid() -> None:
    for name, frame in FRAMES.items():
        assert fuzz_one(frame) == 1, name
    assert fuzz_one(b"".join(FRAMES.values())) == len(FRAMES)


@pytest.mark.parametrize("name", FRAMES)
def test_mutated_requests_are_read_or_refused_by_name(name: str) -> None:
    rng = random.Random(name)
    outcomes = {fuzz_one(mutated(FRAMES[name], rng)) for _ in range(MUTATIONS)}
    assert outcomes <= {0, 1}
