"""The clocks of devices: when something happened, where the device's own clock is wrong."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater.pipeline.watermark import EVENT_TIME


def corrected_time(occurred: str | Column, sent: str | Column, received: str | Column) -> Column:
    """Return when an event occurred by the receiver's clock: occurred + (received - sent).

    `occurred` and `sent` are read from the device's clock, `received` from one that is right. How wrong the
    device's clock is cancels out; what remains is the time that sending took. The result is in event time, if
    `received` is its topic's `event_time` and `lateness` covers how long a device holds an event before it sends:

        readings.withColumn("at", corrected_time("occurred", "sent", "received")).transform(tumbling("at", "1 minute"))
    """
    happened, left, arrived = (
        F.col(time) if isinstance(time, str) else time for time in (occurred, sent, received)
    )
    return (happened + (arrived - left)).alias("corrected_time", metadata=EVENT_TIME)
