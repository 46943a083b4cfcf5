"""A fuzz target: any bytes are either a request or refused by name, whatever they are.

With atheris (`pip install atheris`), coverage leads the way from a corpus of one valid request per API
and version; from the repository's root, where CORPUS is a directory:

    python -m tests.wire.fuzz_kafka CORPUS -max_total_time=600

The directory is filled at the first run. Without atheris, `test_fuzz.py` puts some thousands of
mutations of the same corpus through the same function.
"""

from __future__ import annotations

import importlib
import random
import struct
import sys
from pathlib import Path

from headwater.wire.kafka.codec import decode_request
from headwater.wire.kafka.errors import MalformedRequest, UnsupportedRequest
from headwater.wire.kafka.fetch import parse_fetch
from headwater.wire.kafka.frames import next_frame, parse_header
from headwater.wire.kafka.produce import parse_produce
from headwater.wire.kafka.schema import request_type
from headwater.wire.kafka.versions import Api, is_served, request_is_flexible

from .messages import EVERY_VERSION, EVERY_VERSION_NAMES, sample, written

LIMIT = 1 << 20


def fuzz_one(stream: bytes) -> int:
    """Read a stream of frames the way a connection does; return how many requests it held."""
    requests = start = 0
    try:
        while (frame := next_frame(stream, start, len(stream), LIMIT)) is not None:
            body, start = frame
            header = parse_header(stream, body, start)
            if header.api_key == Api.PRODUCE:
                for _, _, first, last in parse_produce(
                    stream, header.payload, start, header.version
                ).partitions:
                    assert first == last == -1 or header.payload <= first <= last <= start
            elif header.api_key == Api.FETCH:
                parse_fetch(stream, header.payload, start, header.version)
            elif is_served(header.api_key, header.version):
                decode_request(header.api_key, header.version, stream, header.payload, start)
            requests += 1
    except (MalformedRequest, UnsupportedRequest):
        pass
    return requests


def corpus() -> dict[str, bytes]:
    """Make a frame with a valid request of every API and version."""
    frames = {}
    for name, (api_key, version) in zip(EVERY_VERSION_NAMES, EVERY_VERSION, strict=True):
        tags = b"\0" if request_is_flexible(api_key, version) else b""
        head = struct.pack(">hhih4s", api_key, version, 1, 4, b"fuzz") + tags
        body = head + written(sample(request_type(api_key, version), random.Random(version)))
        frames[name] = struct.pack(">i", len(body)) + body
    return frames


def _fuzz(stream: bytes) -> None:
    fuzz_one(stream)  # atheris takes a returned number for a verdict


def main() -> None:
    """Run under atheris until it is stopped or finds something."""
    atheris = importlib.import_module("atheris")

    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            directory = Path(argument)
            directory.mkdir(parents=True, exist_ok=True)
            for name, frame in corpus().items():
                (directory / name).write_bytes(frame)
    atheris.instrument_all()
    atheris.Setup(sys.argv, _fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
