"""The end of a process that Spark has started, where Spark itself is gone.

Spark's processes end when they next read from the JVM, or write to it. One that is asking a broker does so only once
it has given up on that, and a broker that was killed along with the JVM does not answer.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time

__all__ = ["end_with_parent"]

_GRACE_SECONDS = 2.0
"""For what the process still does by itself when it finds that nobody asks any more."""
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def end_with_parent() -> None:
    """Have the process of a source end soon after its JVM; in any other process, do nothing."""
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is None or started_as.name != _RUNNER:
        return
    try:
        # Not PR_SET_PDEATHSIG: that is sent when the parent's thread ends, and here that is one of the JVM's many.
        parent = os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return  # not Linux, or one before 5.3: it ends when it has given up on the broker
    threading.Thread(target=_end_with, args=(parent,), name="headwater-parent", daemon=True).start()


def _end_with(parent: int) -> None:
    poller = select.poll()
    poller.register(parent, select.POLLIN)
    poller.poll()
    time.sleep(_GRACE_SECONDS)
    os._exit(1)
