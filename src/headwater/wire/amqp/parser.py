"""The frames of a client, found in the chunks in which they come.

What there is most of goes to the receiver without being decoded: a publish as the bytes of its method frame,
which say where it goes, and the bytes of its content frames, which are passed on as they are; an
acknowledgement as its numbers. All other methods go as their payload.

A message whose three frames are in one chunk takes the short way; one that is spread over several chunks or
body frames is put together here first, under the limits of `max_body`.
"""

from __future__ import annotations

import struct
from typing import Protocol

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.message import repacked
from headwater.wire.amqp.constants import (
    BASIC,
    BASIC_ACK,
    BASIC_PUBLISH,
    BODY,
    FRAME_END,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    METHOD,
)
from headwater.wire.amqp.errors import bad_frame, content_header_error, unexpected_frame

__all__ = ["Parser", "Receiver"]

_FRAME = struct.Struct(">BHI")
_CONTENT = struct.Struct(">BHIHHQ")
_SIZE = struct.Struct(">Q")
_ACK = struct.Struct(">QB")
_KINDS = (METHOD, HEADER, BODY, HEARTBEAT)
_PUBLISH = BASIC_PUBLISH.to_bytes(4, "big")
_ACKED = BASIC_ACK.to_bytes(4, "big")
_ACK_SIZE = 13
_PART = 64
"""What a frame that is held takes in memory besides its bytes."""
_ONE_BODY = 2


class Receiver(Protocol):
    """What is told of a client's frames."""

    def publish(self, method: bytes, contents: list[bytes], header_size: int) -> None:
        """Take messages with one method: its whole frame, each one's content frames, the size of their headers."""

    def acknowledge(self, channel: int, tag: int, multiple: int) -> None:
        """Take a basic.ack."""

    def method(self, channel: int, payload: bytes) -> None:
        """Take any other method."""

    def refuse(self, channel: int, error: AmqpError) -> None:
        """Close a channel whose message cannot be taken."""

    def closes(self, channel: int) -> bool:
        """Tell whether a channel is closing, so that what still comes for it is left out."""


class _Content:
    """A message of which more frames are to come."""

    __slots__ = ("header_size", "left", "method", "parts")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.parts: list[bytes] = []
        self.header_size = 0
        self.left = -1


class Parser:
    """Finds frames in chunks of one connection."""

    def __init__(self, frame_max: int, max_body: int) -> None:
        self.frame_max = frame_max
        """What the client and we have agreed on; larger frames end the connection."""
        self.max_body = max_body
        self.buffered = 0
        """How many bytes of memory unfinished messages take, about."""
        self.paused = False
        """Whether nothing more is to be found for now; what comes meanwhile is kept."""
        self._rest = b""
        self._contents: dict[int, _Content] = {}

    def forget(self, channel: int) -> None:
        """Drop the unfinished message of a channel that is gone."""
        content = self._contents.pop(channel, None)
        if content is not None:
            self.buffered -= sum(len(part) + _PART for part in content.parts)

    def feed(self, data: bytes, receiver: Receiver) -> None:
        """Find the frames in the next chunk; raises `AmqpError` where it is none."""
        if self._rest:
            data = self._rest + data
        if self.paused:
            self._rest = data
            return
        end = len(data)
        position = 0
        unpack, unpack_content, most = _FRAME.unpack_from, _CONTENT.unpack_from, self.frame_max
        contents = self._contents
        # Messages that follow one another with the same method go to the receiver together.
        run: list[bytes] = []
        run_method, run_size, run_channel = b"", 0, 0
        # What a message of the run begins with: its method, and its header up to the size of the body.
        run_head, run_stop = b"", 0
        unpack_size = _SIZE.unpack_from
        error: AmqpError | None = None
        while end - position >= FRAME_OVERHEAD:
            if run and data.startswith(run_head, position):
                begin = position + run_stop
                after = begin + run_size + FRAME_OVERHEAD
                if after + 7 <= end:
                    (body,) = unpack_size(data, begin + 11)
                    kind, channel, size = unpack(data, after)
                    last = after + size + FRAME_OVERHEAD
                    if (
                        last <= end
                        and size == body <= most
                        and kind == BODY
                        and channel == run_channel
                        and data[after - 1] == FRAME_END
                        and data[last - 1] == FRAME_END
                    ):
                        run.append(data[begin:last])
                        position = last
                        continue
            kind, channel, size = unpack(data, position)
            stop = position + size + FRAME_OVERHEAD
            if stop > end:
                if size > most:
                    error = bad_frame(kind, data[position + 7 :], f"its {size} bytes exceed {most}")
                elif kind not in _KINDS:
                    error = bad_frame(kind, data[position + 7 :], "there is no such type")
                break
            if size > most:
                error = bad_frame(kind, data[position + 7 :], f"its {size} bytes exceed {most}")
                break
            if data[stop - 1] != FRAME_END:
                error = bad_frame(kind, data[position + 7 : stop], "it does not end with 206")
                break
            if kind == METHOD:
                if contents and channel in contents:
                    raise unexpected_frame(kind, data[position + 7 : stop - 1])
                method = data[position + 7 : position + 11]
                if method == _PUBLISH:
                    if stop + 19 <= end:
                        header_kind, header_channel, header_size, class_id, weight, body = unpack_content(
                            data, stop
                        )
                        after = stop + header_size + FRAME_OVERHEAD
                        if (
                            header_kind == HEADER
                            and header_channel == channel
                            and class_id == BASIC
                            and weight == 0
                            and 12 < header_size <= most
                            and after <= end
                            and data[after - 1] == FRAME_END
                        ):
                            if body:
                                if after + 7 <= end:
                                    body_kind, body_channel, body_size = unpack(data, after)
                                    last = after + body_size + FRAME_OVERHEAD
                                    if (
                                        body_kind == BODY
                                        and body_size == body
                                        and body_channel == channel
                                        and last <= end
                                        and body_size <= most
                                        and data[last - 1] == FRAME_END
                                    ):
                                        method = data[position:stop]
                                        if method != run_method or header_size != run_size:
                                            if run:
                                                receiver.publish(run_method, run, run_size)
                                                run = []
                                            run_method, run_size, run_channel = method, header_size, channel
                                            run_stop = stop - position
                                            run_head = data[position : stop + 11]
                                        run.append(data[stop:last])
                                        position = last
                                        continue
                            else:
                                if run:
                                    receiver.publish(run_method, run, run_size)
                                    run, run_method = [], b""
                                receiver.publish(data[position:stop], [data[stop:after]], header_size)
                                position = after
                                continue
                    if run:
                        receiver.publish(run_method, run, run_size)
                        run, run_method = [], b""
                    if not receiver.closes(channel):
                        contents[channel] = _Content(data[position:stop])
                    position = stop
                    continue
                if run:
                    receiver.publish(run_method, run, run_size)
                    run, run_method = [], b""
                if method == _ACKED and size == _ACK_SIZE:
                    tag, multiple = _ACK.unpack_from(data, position + 11)
                    receiver.acknowledge(channel, tag, multiple & 1)
                else:
                    receiver.method(channel, data[position + 7 : stop - 1])
                    if self._is_paused():
                        position = stop
                        break
                    most = self.frame_max  # the handshake may have raised it
            elif kind == HEARTBEAT:
                if channel or size:
                    error = bad_frame(
                        kind, data[position + 7 : stop - 1], "a heartbeat has no channel and no payload"
                    )
                    break
            else:
                if run:
                    receiver.publish(run_method, run, run_size)
                    run, run_method = [], b""
                if not receiver.closes(channel):
                    self._content(kind, channel, data[position:stop], receiver)
            position = stop
        if run:
            receiver.publish(run_method, run, run_size)
        if error is not None:
            raise error
        self._rest = data[position:] if position < end else b""

    def _is_paused(self) -> bool:
        return self.paused

    def _content(self, kind: int, channel: int, frame: bytes, receiver: Receiver) -> None:
        content = self._contents.get(channel)
        if kind not in (HEADER, BODY):
            raise bad_frame(kind, frame[7:-1], "there is no such type")
        if content is None or (kind == HEADER) != (content.left < 0):
            raise unexpected_frame(kind, frame[7:-1])
        if kind == HEADER:
            self._header(content, frame)
            if content.left > self.max_body:
                self.forget(channel)
                receiver.refuse(channel, _too_long(content.left, self.max_body))
                return
        else:
            content.left -= len(frame) - FRAME_OVERHEAD
            if content.left < 0:
                raise AmqpError(ReplyCode.FRAME_ERROR, "the body is longer than its header says")
        content.parts.append(frame)
        self.buffered += len(frame) + _PART
        if content.left == 0:
            self.forget(channel)
            frames = b"".join(content.parts)
            if len(content.parts) > _ONE_BODY:
                # A body in more frames than it needs would be stored and sent in as many.
                frames = repacked(frames, self.frame_max)
            receiver.publish(content.method, [frames], content.header_size)

    def _header(self, content: _Content, frame: bytes) -> None:
        size = len(frame) - FRAME_OVERHEAD
        if size <= 12:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, f"a content header of {size} bytes is too short")
        error = content_header_error(int.from_bytes(frame[7:9], "big"), int.from_bytes(frame[9:11], "big"))
        if error is not None:
            raise error
        content.header_size = size
        content.left = int.from_bytes(frame[11:19], "big")


def _too_long(size: int, most: int) -> AmqpError:
    text = f"message size {size} is larger than configured max size {most}"
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text, BASIC, 40)
