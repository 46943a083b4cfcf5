"""The settings of transactions: Kafka's names and bounds."""

from __future__ import annotations

from headwater.core.settings import Kind, Setting, Settings, between

TRANSACTION_SETTINGS = Settings(
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "The longest time that a producer may ask for its transactions to stay open.",
        between(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        500,
        "How often transactions are looked for that have been open for longer than their time-out.",
        between(1),
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "How long a transactional id without a transaction is remembered after its last use.",
        between(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often transactional ids are looked for that have expired.",
        between(1),
    ),
)
