"""A process that appends to a stream, and prints the version and the id of each event once it is acknowledged.

Its arguments: the broker, the store, the index's directory, the stream, how many events, and whether it takes the
partition back when another process has it.
"""

from __future__ import annotations

import json
import sys

from headwater.events import EventStore, NewEvent, WriterFenced


def main(broker: str, name: str, directory: str, stream: str, count: str, claim: str) -> None:
    with EventStore(broker, name, directory=directory) as store:
        done = 0
        while done < int(count):
            try:
                appended = store.append(stream, NewEvent("Counted", {"n": done}))
            except WriterFenced:
                if claim != "1":
                    raise
                store.claim()
                continue
            done += 1
            sys.stdout.write(json.dumps([appended.version, appended.events[0].id]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
