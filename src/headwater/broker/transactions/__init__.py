"""Transactions over partitions and group offsets, as a state machine that Kafka's clients know."""

from headwater.broker.transactions.coordinator import TransactionCoordinator
from headwater.broker.transactions.outcome import (
    NOBODY,
    Ending,
    EndRequest,
    InitRequest,
    Outcome,
    ProducerIdentity,
    Reply,
)
from headwater.broker.transactions.records import TopicPartition, Transaction, TransactionState
from headwater.broker.transactions.settings import TRANSACTION_SETTINGS

__all__ = [
    "NOBODY",
    "TRANSACTION_SETTINGS",
    "EndRequest",
    "Ending",
    "InitRequest",
    "Outcome",
    "ProducerIdentity",
    "Reply",
    "TopicPartition",
    "Transaction",
    "TransactionCoordinator",
    "TransactionState",
]
