"""Applications: what a user declares, checked when it is loaded; no Spark and no sockets here."""

from headwater.app.application import App
from headwater.app.definitions import (
    Alert,
    Definition,
    Delivery,
    Function,
    Sink,
    Stream,
    Table,
    Topic,
    View,
)
from headwater.app.errors import AppError, Location, SchemaError
from headwater.app.loading import load

__all__ = [
    "Alert",
    "App",
    "AppError",
    "Definition",
    "Delivery",
    "Function",
    "Location",
    "SchemaError",
    "Sink",
    "Stream",
    "Table",
    "Topic",
    "View",
    "load",
]
