"""AMQP 0-9-1's numbers: frame types, sizes, and the methods that are read and written by hand."""

from __future__ import annotations

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
"""What a client sends first, and what it gets back when it asked for another protocol."""

METHOD = 1
HEADER = 2
BODY = 3
HEARTBEAT = 8

FRAME_END = 0xCE
FRAME_HEADER_SIZE = 7
FRAME_OVERHEAD = 8
"""What a frame is longer than its payload: type, channel and size in front, the end after it."""
FRAME_MIN_SIZE = 4096
"""What every peer takes, and what holds until both have agreed on more."""
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

FRAME_MAX = 131072
CHANNEL_MAX = 2047
HEARTBEAT_SECONDS = 60
"""What RabbitMQ proposes, and so do we."""

MAX_SHORT_STRING = 255

CONNECTION = 10
CHANNEL = 20
EXCHANGE = 40
QUEUE = 50
BASIC = 60

# A method's number is its class and its place in it, as the four bytes in front of its payload hold them.
CONNECTION_TUNE = CONNECTION << 16 | 30
CHANNEL_OPEN = CHANNEL << 16 | 10
BASIC_PUBLISH = BASIC << 16 | 40
BASIC_RETURN = BASIC << 16 | 50
BASIC_DELIVER = BASIC << 16 | 60
BASIC_GET_OK = BASIC << 16 | 71
BASIC_ACK = BASIC << 16 | 80
BASIC_NACK = BASIC << 16 | 120
