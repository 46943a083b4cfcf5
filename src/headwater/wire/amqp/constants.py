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
ACCESS = 30
EXCHANGE = 40
QUEUE = 50
BASIC = 60
CONFIRM = 85
TX = 90

# A method's number is its class and its place in it, as the four bytes in front of its payload hold them.
CONNECTION_START = CONNECTION << 16 | 10
CONNECTION_START_OK = CONNECTION << 16 | 11
CONNECTION_TUNE = CONNECTION << 16 | 30
CONNECTION_TUNE_OK = CONNECTION << 16 | 31
CONNECTION_OPEN = CONNECTION << 16 | 40
CONNECTION_OPEN_OK = CONNECTION << 16 | 41
CONNECTION_CLOSE = CONNECTION << 16 | 50
CONNECTION_CLOSE_OK = CONNECTION << 16 | 51
CHANNEL_OPEN = CHANNEL << 16 | 10
CHANNEL_CLOSE = CHANNEL << 16 | 40
CHANNEL_CLOSE_OK = CHANNEL << 16 | 41
BASIC_QOS = BASIC << 16 | 10
BASIC_CONSUME = BASIC << 16 | 20
BASIC_CANCEL = BASIC << 16 | 30
BASIC_PUBLISH = BASIC << 16 | 40
BASIC_RETURN = BASIC << 16 | 50
BASIC_DELIVER = BASIC << 16 | 60
BASIC_GET = BASIC << 16 | 70
BASIC_GET_OK = BASIC << 16 | 71
BASIC_GET_EMPTY = BASIC << 16 | 72
BASIC_ACK = BASIC << 16 | 80
BASIC_REJECT = BASIC << 16 | 90
BASIC_NACK = BASIC << 16 | 120
