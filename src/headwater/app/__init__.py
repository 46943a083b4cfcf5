"""Applications: what a user declares, checked when it is loaded; no Spark and no sockets here."""

from headwater.app.application import App
from headwater.app.definitions import (
    Alert,
    Cache,
    Definition,
    Delivery,
    Derived,
    Function,
    Index,
    Sink,
    Stream,
    Table,
    Topic,
    View,
    Warehouse,
    Webhook,
)
from headwater.app.errors import AppError, Location, SchemaError
from headwater.app.loading import load

__all__ = [
    "Alert",
    "App",
    "AppError",
    "Cache",
    "Definition",
    "Delivery",
    "Derived",
    "Function",
    "Index",
    "Location",
    "SchemaError",
    "Sink",
    "Stream",
    "Table",
    "Topic",
    "View",
    "Warehouse",
    "Webhook",
    "load",
]
