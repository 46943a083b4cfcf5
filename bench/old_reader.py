"""A consumer that lags: it reads a topic from its start, slower than the broker could serve it.

Run as a process of its own, `python -m bench.old_reader BOOTSTRAP TOPIC BYTES_PER_SECOND`, so that it takes
nothing from the clients it is measured beside but what the broker and the disk do for it. It ends when its
standard input does, and says then how much it has read.
"""

from __future__ import annotations

import selectors
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from bench.clients import QUIET


def read(bootstrap: str, topic: str, bytes_per_second: int) -> int:
    """Read until standard input ends, and return the bytes that were read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "old-reader",
            # No more than this is fetched ahead of what is asked for.
            "queued.max.messages.kbytes": 2048,
            "log_level": QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    done = 0
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        while not selector.select(max(0.0, done / bytes_per_second - (time.monotonic() - began))):
            for message in consumer.consume(10, 0.1):
                done += len(message.value() or b"")
    consumer.close()
    return done


if __name__ == "__main__":
    print(read(sys.argv[1], sys.argv[2], int(sys.argv[3])))
