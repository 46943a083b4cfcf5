"""The stores that an application declares, opened."""

from __future__ import annotations

from pathlib import Path

from headwater.app import App, Cache, Derived, Index, Stream, Table, Warehouse
from headwater.app.types import Field
from headwater.derived.cache_file import FileCache
from headwater.derived.cache_redis import RedisCache
from headwater.derived.decode import Decoder, KeyText
from headwater.derived.errors import DerivedError
from headwater.derived.follower import Stream as Followed
from headwater.derived.index import SearchIndex
from headwater.derived.store import Store
from headwater.derived.warehouse import Warehouse as ParquetWarehouse

__all__ = ["cache_file", "columns_of", "find", "key_of", "open_store", "place_of", "stream_of"]


def find(app: App, name: str) -> Derived:
    """Return the store of a name."""
    for each in app.derived():
        if each.name == name:
            return each
    known = ", ".join(each.name for each in app.derived()) or "none"
    raise DerivedError(f"{app.name} declares no index, cache or warehouse {name}: there are {known}")


def columns_of(app: App, definition: Derived) -> tuple[Field, ...]:
    """Return the columns of what a store is of."""
    read = app.definitions[definition.of]
    if isinstance(read, Table):
        return read.fields
    return () if isinstance(definition, Cache) else definition.fields


def key_of(app: App, definition: Derived) -> KeyText:
    """Return what makes the keys of a store's rows."""
    read = app.definitions[definition.of]
    assert isinstance(read, Table | Stream)
    return KeyText(read.key, columns_of(app, definition))


def stream_of(app: App, definition: Derived) -> Followed:
    """Return the topic that a store follows, and how it is read."""
    read = app.definitions[definition.of]
    envelope = read.envelope if isinstance(read, Table) else "flat"
    decoder = Decoder(envelope, key_of(app, definition), keyed_by_text=isinstance(read, Stream))
    return Followed(definition.of, decoder)


def cache_file(data: Path, name: str) -> Path:
    """Return the file of a cache that has no address."""
    return data / "derived" / f"{name}.db"


def place_of(definition: Derived, data: Path) -> Path | str:
    """Return where a store is: a directory, a file, or an address."""
    match definition:
        case Cache(url=None):
            return cache_file(data, definition.name)
        case Cache(url=str(url)):
            return url
        case Warehouse(path=str(path)):
            return Path(path)
        case _:
            return data / "derived" / definition.name


def open_store(app: App, definition: Derived, data: Path) -> Store:
    """Return a store, which is made where it is missing."""
    columns = columns_of(app, definition)
    place = place_of(definition, data)
    match definition:
        case Index():
            return SearchIndex(definition.name, Path(place), columns, definition.text)
        case Cache(url=None):
            return FileCache(Path(place))
        case Cache(url=url):
            assert url is not None
            return RedisCache(url, definition.name)
        case Warehouse():
            return ParquetWarehouse(
                definition.name, Path(place), columns, gather_seconds=definition.every_ms / 1000
            )
