"""What every state machine of the broker speaks: records that change it, and where they are kept.

A handler looks at the state and returns the records that would change it, with its reply; only
`replay` changes anything. The node appends the records to the machine's compacted internal topic,
replays them at once, and lets the reply go when they are on disk. Recovery reads that topic from
its start through the same `replay`.
"""

from __future__ import annotations

from typing import NamedTuple


class StateRecord(NamedTuple):
    """A change of state: the newest value of a key, or None when the key is gone."""

    key: bytes
    value: bytes | None
