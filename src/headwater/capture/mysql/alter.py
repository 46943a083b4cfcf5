"""What the clauses of an ALTER TABLE make of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.capture.mysql.statement import Statement, parts, plain
from headwater.capture.mysql.tables import Field, Table

__all__ = ["alter"]

_NO_COLUMNS = {
    "index",
    "key",
    "fulltext",
    "spatial",
    "constraint",
    "foreign",
    "check",
    "partition",
    "period",
    "system",
}
_HARMLESS = {
    "engine", "auto_increment", "comment", "row_format", "key_block_size", "algorithm", "lock", "order", "force",
    "enable", "disable", "stats_persistent", "stats_auto_recalc", "stats_sample_pages", "max_rows", "min_rows",
    "avg_row_length", "checksum", "pack_keys", "analyze", "optimize", "rebuild", "reorganize", "coalesce", "exchange",
    "truncate", "page_compressed", "encrypted", "nowait", "wait", "with", "without", "validation", "index", "key",
    "fulltext", "spatial", "constraint", "foreign", "check", "partition", "remove", "discard", "import", "tablespace",
}  # fmt: skip
_TEXT_TYPES = {
    "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "character", "nchar", "nvarchar",
    "json", "clob", "varcharacter",
}  # fmt: skip
_BINARY_OF = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip


def alter(table: Table, clauses: tuple[tuple[str, ...], ...]) -> Table | None:
    """Return a table as clauses, given as their words, change it; None where one cannot be read."""
    change = _Change(list(table.fields), table.key, table.charset)
    try:
        for clause in clauses:
            if not change.apply(clause):
                return None
    except (IndexError, ValueError, KeyError):
        return None
    if not change.key:  # a unique index may take the place of the primary key
        return None
    return Table(table.schema, table.name, tuple(change.fields), change.key, change.charset)


@dataclass
class _Change:
    """A table while the clauses of an ALTER TABLE change it."""

    fields: list[Field]
    key: tuple[str, ...]
    charset: str

    def apply(self, clause: tuple[str, ...]) -> bool:
        said = Statement(list(clause), "")
        if said.take("add"):
            return self._add(said)
        if said.take("drop"):
            return self._drop(said)
        if said.take("modify"):
            said.take("column")
            said.take("if", "exists")
            return self._define(said, replaced=plain(said.words[said.at]))
        if said.take("change"):
            said.take("column")
            said.take("if", "exists")
            old = plain(said.words[said.at])
            said.at += 1
            return self._define(said, replaced=old)
        if said.take("rename", "column"):
            said.take("if", "exists")
            old, new = plain(said.words[said.at]), plain(said.words[said.at + 2])
            self._rename(old, new)
            return True
        if said.take("convert", "to"):
            return self._convert(said)
        if said.take("alter"):  # defaults and visibility
            return True
        if said.take("rename"):  # of an index
            return True
        return self._table_option(said)

    def _add(self, said: Statement) -> bool:
        if said.take("primary", "key") or (
            said.take("constraint") and (said.take("primary", "key") or self._skip_to_primary(said))
        ):
            self.key = _key_columns(said)
            return True
        if said.peek() == "unique" or said.peek() in _NO_COLUMNS:
            return True
        said.take("column")
        said.take("if", "not", "exists")
        if said.take("("):
            return self._add_several(said)
        return self._define(said, replaced=None)

    def _skip_to_primary(self, said: Statement) -> bool:
        if said.peek(1) == "primary":
            said.at += 3
            return True
        said.at -= 1
        return False

    def _add_several(self, said: Statement) -> bool:
        return all(self._define(Statement(words, ""), replaced=None) for words in parts(said.rest()[:-1]))

    def _drop(self, said: Statement) -> bool:
        if said.take("primary", "key"):
            self.key = ()
            return True
        if said.peek() in _NO_COLUMNS:
            return True
        said.take("column")
        said.take("if", "exists")
        name = plain(said.words[said.at])
        place = self._place(name)
        del self.fields[place]
        return name not in self.key

    def _define(self, said: Statement, *, replaced: str | None) -> bool:
        """Read a column's definition, and put it in its place."""
        name = plain(said.words[said.at])
        said.at += 1
        found = _definition(name, said, self.charset)
        if found is None:
            return False
        column, is_key, after = found
        place = len(self.fields)
        if replaced is not None:
            old = self.fields[self._place(replaced)]
            place = self.fields.index(old)
            self.fields.remove(old)
            self.key = tuple(name if part == old.name else part for part in self.key)
        elif any(column.name.lower() == name.lower() for column in self.fields):
            return True  # IF NOT EXISTS
        if after == "":
            place = 0
        elif after is not None:
            place = self._place(after) + 1
        self.fields.insert(place, column)
        if is_key:
            self.key = (name,)
        return True

    def _rename(self, old: str, new: str) -> None:
        place = self._place(old)
        column = self.fields[place]
        self.fields[place] = replace(column, name=new)
        self.key = tuple(new if part == column.name else part for part in self.key)

    def _convert(self, said: Statement) -> bool:
        charset = _charset(said)
        if charset is None:
            return False
        self.charset = charset
        for place, column in enumerate(self.fields):
            if column.charset is not None and column.charset != "binary":
                if column.type.base.endswith("text"):
                    return False  # a longer type may be taken so that everything fits
                self.fields[place] = replace(column, charset=charset)
        return True

    def _table_option(self, said: Statement) -> bool:
        said.take("default")
        if said.peek() in ("character", "charset", "collate"):
            charset = _charset(said)
            self.charset = charset or self.charset
            return charset is not None
        return said.peek() in _HARMLESS

    def _place(self, name: str) -> int:
        return [column.name.lower() for column in self.fields].index(name.lower())


def _charset(said: Statement) -> str | None:
    if said.take("character", "set") or said.take("charset"):
        said.take("=")
        found = plain(said.words[said.at].strip("'")).lower()
        return None if found == "default" else found
    if said.take("collate"):
        said.take("=")
        return plain(said.words[said.at].strip("'")).lower().partition("_")[0]
    return None


def _key_columns(said: Statement) -> tuple[str, ...]:
    while not said.take("("):
        said.at += 1
        if not said.peek():
            raise IndexError
    names, depth = [], 0
    while said.peek() != ")" or depth:
        word = said.words[said.at]
        depth += (word == "(") - (word == ")")
        if not depth and word not in (",", ")") and word.lower() not in ("asc", "desc"):
            names.append(plain(word))
        said.at += 1
    return tuple(names)


def _definition(name: str, said: Statement, default: str) -> tuple[Field, bool, str | None] | None:
    """Read a column's definition: the column, whether it is the key, and which it stands behind (empty: first)."""
    base = said.peek()
    if base in ("national", "long", "serial") or not base:
        return None
    native = said.words[said.at].lower()
    said.at += 1
    said.take("precision") or said.take("varying")
    if said.peek() == "(":
        while said.peek() != ")":
            native += said.words[said.at]
            said.at += 1
        native += ")"
        said.at += 1
    while said.peek() in ("unsigned", "signed", "zerofill"):
        native += "" if said.peek() == "signed" else f" {said.peek()}"
        said.at += 1
    charset = default if base in _TEXT_TYPES else None
    optional, is_key, after, depth = True, False, None, 0
    while said.peek():
        if said.take("("):
            depth += 1
        elif said.take(")"):
            depth -= 1
        elif depth:
            said.at += 1
        elif said.peek() in ("character", "charset") or (said.peek() == "collate" and charset is not None):
            found = _charset(said)
            charset = found or charset
            said.at += 1
        elif said.take("not", "null"):
            optional = False
        elif said.take("primary"):
            is_key, optional = True, False
        elif said.take("binary") or said.take("ascii") or said.take("unicode") or said.take("compressed"):
            return None
        elif said.take("first"):
            after = ""
        elif said.take("after"):
            after = plain(said.words[said.at])
            said.at += 1
        else:
            said.at += 1
    if charset == "binary" and (other := _BINARY_OF.get(base)):
        native, charset = other + native[len(base) :], None
    return Field(name, native, charset, optional), is_key, after
